//! Servers for tests and benchmarks, from the start to the end of the run.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::packages::{Account, Found, Kind, find};
use crate::progress::say;
use crate::servers::guardian::Guardian;
use crate::servers::postgres::POSTGRES;
use crate::servers::redis::REDIS;

/// The URL of the Postgres that all tests share.
///
/// # Panics
/// If there is none.
pub fn postgres_url() -> String {
    shared(POSTGRES.variable)
}

/// The URL of the Redis that all tests share.
///
/// # Panics
/// If there is none.
pub fn redis_url() -> String {
    shared(REDIS.variable)
}

fn shared(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run the tests by `cargo xtask test`"))
}

/// Servers that run until this is dropped, or the process ends.
pub struct Servers {
    guardian: Option<Guardian>,
    urls: Vec<(&'static str, String)>,
    postgres: Option<Found>,
}

impl Servers {
    /// Starts the servers for which the environment has no URL.
    ///
    /// # Errors
    /// If there is one that is neither installed nor can be, or does not start.
    pub fn start() -> Result<Self> {
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

    /// Starts a separate Postgres, with these settings, such as `max_connections=10`.
    ///
    /// # Errors
    /// If there is none, or it does not start.
    pub fn postgres(settings: &[&str]) -> Result<Self> {
        Self::of(&[&POSTGRES], settings, |_| {})
    }

    fn of(wanted: &[&Kind], settings: &[&str], found_one: impl Fn(&str)) -> Result<Self> {
        let account = Account::detect()?;
        // The shell gets its arguments from the environment, which accepts any path as it is.
        let mut shell = account.command("sh");
        shell.args(["-c", include_str!("shared.sh"), "testkit"]);
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

    /// The URL of the only started server.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", |(_, url)| url)
    }

    /// The folder of the servers' sockets and data.
    pub fn folder(&self) -> &str {
        self.guardian.as_ref().map_or("", |guardian| &guardian.folder)
    }

    /// A program of the Postgres package, such as `pgbench`: beside the server, at the end of a
    /// link, or on PATH.
    ///
    /// # Errors
    /// If no separate Postgres was started.
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
    pub fn urls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.urls.iter().map(|(variable, url)| (*variable, url.as_str()))
    }

    /// Stops the servers.
    ///
    /// # Errors
    /// If one of them has ended before.
    pub fn stop(mut self) -> Result<()> {
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
