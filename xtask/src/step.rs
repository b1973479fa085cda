//! A step: one command with visible output, timed.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::progress::{say, workspace};

/// The steps so far, with the time each took.
#[derive(Default)]
pub struct Steps(Vec<(String, Duration, bool)>);

impl Steps {
    /// Runs a command with its output on the terminal. Every result except success is an error.
    pub fn run(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.attend(name, command, |_| ())
    }

    /// Runs a command with its output on standard error, and passes every line to a listener. Every
    /// result except success is an error.
    pub(crate) fn hear(
        &mut self,
        name: &str,
        command: &mut Command,
        mut hear: impl FnMut(&str),
    ) -> Result<()> {
        if io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        // Both outputs share one pipe, so that lines come in the order in which they were written.
        let (output, writer) = io::pipe().context("could not make a pipe")?;
        command.stdout(writer.try_clone().context("could not share a pipe")?).stderr(writer);
        self.attend(name, command, |child| {
            let (sender, lines) = mpsc::channel();
            thread::spawn(move || {
                let lines = BufReader::new(output).split(b'\n');
                lines.map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
            let mut ended = false;
            loop {
                match lines.recv_timeout(Duration::from_secs(1)) {
                    Ok(line) => {
                        let line = String::from_utf8_lossy(&line);
                        let _ = writeln!(io::stderr(), "{line}");
                        hear(&line);
                    }
                    // A process that was left behind may keep the pipe open for ever.
                    Err(RecvTimeoutError::Timeout) if !ended => ended = !matches!(child.try_wait(), Ok(None)),
                    Err(_) => return,
                }
            }
        })
    }

    fn attend(
        &mut self,
        name: &str,
        command: &mut Command,
        meanwhile: impl FnOnce(&mut Child),
    ) -> Result<()> {
        let line = command_line(command);
        say(format_args!("{name}: {line}"));
        self.time(name, || {
            let mut leash = Leash::new()?;
            let mut child = command.spawn().with_context(|| format!("could not run `{line}`"))?;
            // The command keeps its ends of a pipe, which would otherwise never end.
            command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
            leash.hold(&child)?;
            meanwhile(&mut child);
            let status = child.wait().with_context(|| format!("could not wait for `{line}`"))?;
            leash.release();
            if !status.success() {
                bail!("{name}: ended with {status}");
            }
            Ok(())
        })
    }

    /// Records the time that `work` takes, and its success, under the name of a step.
    pub fn time<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let outcome = work();
        self.0.push((name.to_owned(), started.elapsed(), outcome.is_ok()));
        outcome
    }

    /// Prints the time of each step.
    pub fn summary(&self) {
        for (name, took, succeeded) in &self.0 {
            let mark = if *succeeded { "" } else { "  failed" };
            say(format_args!("{:>8.1} s  {name}{mark}", took.as_secs_f64()));
        }
        let total: Duration = self.0.iter().map(|(_, took, _)| *took).sum();
        say(format_args!("{:>8.1} s  in all", total.as_secs_f64()));
    }
}

/// Success if all of these succeeded, otherwise one error that contains all errors.
pub fn all_of(outcomes: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let errors: Vec<String> =
        outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("; "));
    Ok(())
}

/// A guard that ends a step whose parent is gone, so that killing xtask leaves no tests behind.
///
/// A shell reads from a pipe: first the process of the step, then a line that the step has ended.
/// If the pipe ends without that line, xtask has ended.
struct Leash(Child);

impl Leash {
    fn new() -> Result<Self> {
        Command::new("sh")
            .args(["-c", include_str!("leash.sh"), "xtask"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The shell has a group of its own, so that Ctrl-C does not reach it.
            .process_group(0)
            .spawn()
            .map(Self)
            .context("could not run `sh` to watch over a step")
    }

    fn hold(&mut self, step: &Child) -> Result<()> {
        self.write(&step.id().to_string()).context("could not write to the shell that watches over a step")
    }

    fn release(mut self) {
        // It fails only if the shell is gone, and then there is nothing left to release.
        let _ = self.write("ended");
        let _ = self.0.wait();
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let Some(pipe) = &mut self.0.stdin else {
            return Ok(());
        };
        writeln!(pipe, "{line}")
    }
}

/// A cargo command on this workspace, by the cargo that runs xtask.
pub(crate) fn cargo<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(workspace());
    command
}

/// Returns `true` if an extension such as `nextest` or `deny` is installed.
pub(crate) fn cargo_has(extension: &str) -> bool {
    let version = cargo([extension, "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// The command as it would be typed, with the variables that were set for it.
fn command_line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{}={}", name.to_string_lossy(), quoted(value)))
    });
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words: Vec<String> =
        variables.chain([quoted(program)]).chain(command.get_args().map(quoted)).collect();
    words.join(" ")
}

/// A word in the quotes that a shell would need.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_=+./:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn command_line_can_be_typed_again() {
        let mut command = Command::new("/opt/rust/bin/cargo");
        command.args(["test", "it's"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command_line(&command), r"RUSTDOCFLAGS='-D warnings' cargo test 'it'\''s'");
    }
}
