//! Servers for tests and benchmarks, from the start to the end of the run.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::account::Account;
use crate::find::{Found, Kind, find};
use crate::postgres::POSTGRES;
use crate::redis::REDIS;
use crate::step::say;

/// Servers that run until this is dropped, or the process ends.
pub struct Servers {
    guardian: Option<Guardian>,
    urls: Vec<(&'static str, String)>,
    postgres: Option<Found>,
}

impl Servers {
    /// Starts the servers for which the environment holds no URL.
    pub(crate) fn start() -> Result<Self> {
        let mut wanted = Vec::new();
        for kind in [&POSTGRES, &REDIS] {
            if env::var_os(kind.variable).is_some_and(|url| !url.is_empty()) {
                say(format_args!("{} from {}", kind.name, kind.variable));
            } else {
                wanted.push(kind);
            }
        }
        if wanted.is_empty() {
            return Ok(Self { guardian: None, urls: Vec::new(), postgres: None });
        }
        let started = Instant::now();
        let servers = Self::of(&wanted, &[], |found| say(found))?;
        let names: Vec<&str> = wanted.iter().map(|kind| kind.name).collect();
        let took = started.elapsed().as_secs_f64();
        say(format_args!("started {} in {} ({took:.1} s)", names.join(" and "), servers.folder()));
        Ok(servers)
    }

    /// Starts a Postgres of one's own, with these settings, such as `max_connections=10`.
    ///
    /// # Errors
    /// If there is none, or it does not start.
    pub fn postgres(settings: &[&str]) -> Result<Self> {
        Self::of(&[&POSTGRES], settings, |_| {})
    }

    fn of(wanted: &[&Kind], settings: &[&str], found_one: impl Fn(&str)) -> Result<Self> {
        let account = Account::detect()?;
        // The shell finds its arguments in the environment, as that takes any path as it is.
        let mut shell = account.command("sh");
        shell.args(["-c", include_str!("guardian.sh"), "xtask"]);
        let mut postgres = None;
        for kind in wanted {
            let found = find(kind, &account)?;
            found_one(&format!("{} {found}", kind.name));
            let name = kind.name.to_uppercase();
            shell
                .env(format!("{name}_FOLDER"), &found.folder)
                .env(format!("{name}_LIBRARIES"), &found.libraries);
            if kind.name == POSTGRES.name {
                postgres = Some(found);
            }
        }
        let settings: Vec<String> = settings.iter().map(|setting| format!("-c\n{setting}")).collect();
        shell.env("POSTGRES_SETTINGS", settings.join("\n"));
        let guardian = Guardian::start(&mut shell)?;
        let urls = wanted.iter().map(|kind| (kind.variable, (kind.url)(&guardian.folder))).collect();
        Ok(Self { guardian: Some(guardian), urls, postgres })
    }

    /// The URL of the one server that was started.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", |(_, url)| url)
    }

    /// The folder of the servers' sockets and data.
    pub fn folder(&self) -> &str {
        self.guardian.as_ref().map_or("", |guardian| &guardian.folder)
    }

    /// A program that came with Postgres, such as `pgbench`: beside the server, where a link to it leads, or on PATH.
    ///
    /// # Errors
    /// If there is no Postgres of one's own.
    pub fn program(&self, name: &str) -> Result<Command> {
        let found = self.postgres.as_ref().context("there is no server of one's own")?;
        let server = found.folder.join(POSTGRES.programs[0]);
        let linked = server.canonicalize().ok().and_then(|server| Some(server.parent()?.to_owned()));
        let beside =
            [Some(found.folder.clone()), linked].into_iter().flatten().map(|folder| folder.join(name));
        let program = beside.into_iter().find(|program| program.is_file()).unwrap_or_else(|| name.into());
        let mut command = Account::detect()?.command(program);
        command.env("LD_LIBRARY_PATH", &found.libraries);
        Ok(command)
    }

    /// Stops Postgres at once, as a crash would.
    ///
    /// # Errors
    /// If it was not running.
    pub fn crash(&mut self) -> Result<()> {
        self.order("crash")
    }

    /// Starts Postgres again after a crash; it has recovered when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_again(&mut self) -> Result<()> {
        self.order("start")
    }

    fn order(&mut self, order: &str) -> Result<()> {
        self.guardian.as_mut().context("there is no server of one's own")?.order(order)
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
pub(crate) struct Guardian {
    shell: Child,
    output: BufReader<ChildStdout>,
    pub(crate) folder: String,
}

impl Guardian {
    /// Starts a shell as one, and waits until what it looks after is up.
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
            // A guardian that goes on after a complaint is ready for the next order.
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
