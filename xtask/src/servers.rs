//! The servers that tests need, from the start to the end of the run.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::account::Account;
use crate::find::{Kind, find};
use crate::postgres::POSTGRES;
use crate::redis::REDIS;
use crate::step::say;

/// Servers that run until this is dropped, or the process ends.
pub(crate) struct Servers {
    guardian: Option<Guardian>,
    urls: Vec<(&'static str, String)>,
}

impl Servers {
    /// Starts the servers for which the environment holds no URL.
    pub(crate) fn start() -> Result<Self> {
        let account = Account::detect()?;
        let mut wanted = Vec::new();
        for kind in [&POSTGRES, &REDIS] {
            let Kind { name, variable, .. } = kind;
            if env::var_os(variable).is_some_and(|url| !url.is_empty()) {
                say(format_args!("{name} from {variable}"));
                continue;
            }
            let found = find(kind, &account)?;
            say(format_args!("{name} {found}"));
            wanted.push((kind, found));
        }
        if wanted.is_empty() {
            return Ok(Self { guardian: None, urls: Vec::new() });
        }

        let started = Instant::now();
        // The shell finds its arguments in the environment, as that takes any path as it is.
        let mut shell = account.command("sh");
        shell.args(["-c", include_str!("guardian.sh"), "xtask"]);
        for (kind, found) in &wanted {
            let name = kind.name.to_uppercase();
            shell
                .env(format!("{name}_FOLDER"), &found.folder)
                .env(format!("{name}_LIBRARIES"), &found.libraries);
        }
        // Ctrl-C reaches the whole group of the terminal; the guardian has to outlive it.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let shell = shell.spawn().context("could not run `sh` to start the servers")?;
        let (guardian, folder) = Guardian::ready(shell)?;

        let names: Vec<&str> = wanted.iter().map(|(kind, _)| kind.name).collect();
        let took = started.elapsed().as_secs_f64();
        say(format_args!("started {} in {folder} ({took:.1} s)", names.join(" and ")));
        let urls = wanted.iter().map(|(kind, _)| (kind.variable, (kind.url)(&folder))).collect();
        Ok(Self { guardian: Some(guardian), urls })
    }

    /// The variables by which tests find the servers that were started.
    pub(crate) fn urls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.urls.iter().map(|(variable, url)| (*variable, url.as_str()))
    }

    /// Stops the servers. It is an error if one of them did not last until now.
    pub(crate) fn stop(mut self) -> Result<()> {
        let Some(mut guardian) = self.guardian.take() else {
            return Ok(());
        };
        let complaints = guardian.end()?;
        if !complaints.trim().is_empty() {
            bail!("servers: {}", complaints.trim());
        }
        Ok(())
    }
}

/// The shell that owns the servers and their folder. It ends them when the pipe to it is closed, which the
/// system does even for a process that is killed.
struct Guardian {
    shell: Child,
    output: BufReader<ChildStdout>,
}

impl Guardian {
    /// Waits until the servers are up, and returns the folder they are in.
    fn ready(mut shell: Child) -> Result<(Self, String)> {
        let output = shell.stdout.take().context("the guardian of the servers has no output")?;
        let mut guardian = Self { shell, output: BufReader::new(output) };
        let mut line = String::new();
        guardian.output.read_line(&mut line).context("could not read from the guardian of the servers")?;
        if let Some(folder) = line.strip_prefix("ready ") {
            return Ok((guardian, folder.trim_end().to_owned()));
        }
        let rest = guardian.end()?;
        bail!("could not start the servers: {}", format!("{line}{rest}").trim())
    }

    /// Ends the servers, and returns what their guardian had to say since they were up.
    fn end(&mut self) -> Result<String> {
        drop(self.shell.stdin.take());
        let mut said = Vec::new();
        self.output.read_to_end(&mut said).context("could not read from the guardian of the servers")?;
        self.shell.wait().context("could not wait for the guardian of the servers")?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // On this path another failure is on its way to the user, and it says more.
        let _ = self.end();
    }
}
