//! The shell that owns servers and their folder.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The shell that owns the servers and their folder. It ends them when the pipe to it is closed,
/// which the system does even for a process that is killed.
pub(crate) struct Guardian {
    shell: Child,
    output: BufReader<ChildStdout>,
    pub(crate) folder: String,
}

impl Guardian {
    /// Starts a shell as guardian, and waits until its servers are up.
    pub(crate) fn start(shell: &mut Command) -> Result<Self> {
        // Ctrl-C reaches the whole group of the terminal; the guardian has to outlive it.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().context("could not run `sh` as a guardian")?;
        let output = shell.stdout.take().context("the guardian of the servers has no output")?;
        let mut guardian = Self { shell, output: BufReader::new(output), folder: String::new() };
        guardian.await_ready()?;
        Ok(guardian)
    }

    fn await_ready(&mut self) -> Result<()> {
        let mut complaints = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line);
            let ended = read.context("could not read from the guardian of the servers")? == 0;
            if ended {
                self.end()?;
                bail!("could not start the servers: {}", complaints.trim());
            }
            let Some(folder) = line.strip_prefix("ready ") else {
                complaints.push_str(&line);
                continue;
            };
            self.folder = folder.trim_end().to_owned();
            // A guardian that continues after a complaint is ready for the next order.
            ensure!(complaints.is_empty(), "{}", complaints.trim());
            return Ok(());
        }
    }

    pub(crate) fn order(&mut self, order: &str) -> Result<()> {
        let pipe =
            self.shell.stdin.as_mut().context("the guardian of the servers takes no orders any more")?;
        writeln!(pipe, "{order}").context("could not write to the guardian of the servers")?;
        self.await_ready()
    }

    /// Ends the servers, and returns the complaints of their guardian since they were up.
    pub(crate) fn end(&mut self) -> Result<String> {
        drop(self.shell.stdin.take());
        let mut said = Vec::new();
        self.output.read_to_end(&mut said).context("could not read from the guardian of the servers")?;
        self.shell.wait().context("could not wait for the guardian of the servers")?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // On this path another failure is being reported, which matters more.
        let _ = self.end();
    }
}
