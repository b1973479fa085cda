//! Servers of Postgres that tests start, crash, copy and promote.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::packages::{Account, Found, find};
use crate::ports::Port;
use crate::servers::guardian::Guardian;
use crate::servers::postgres::POSTGRES;
use crate::servers::postgres::server::Server;

/// Servers of Postgres that run until this is dropped, or the process ends. Each listens on a port
/// of 127.0.0.1 and at a socket, and trusts every connection from this machine, as `postgres`.
pub struct PostgresServers {
    guardian: Guardian,
    account: Account,
    found: Found,
    servers: HashMap<String, Server>,
}

impl PostgresServers {
    /// An empty set of servers.
    ///
    /// # Errors
    /// If Postgres is not installed and cannot be.
    pub fn new() -> Result<Self> {
        let account = Account::detect()?;
        let found = find(&POSTGRES, &account)?;
        let mut shell = account.command("sh");
        shell.args(["-c", include_str!("servers.sh"), "testkit"]);
        shell.env("POSTGRES_FOLDER", &found.folder).env("POSTGRES_LIBRARIES", &found.libraries);
        Ok(Self { guardian: Guardian::start(&mut shell)?, account, found, servers: HashMap::new() })
    }

    /// Starts a server, for the first time or again, with settings such as `max_connections=10`,
    /// which apply to this start and all later ones. The server accepts connections when this
    /// returns; a standby need not have found its primary.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(&mut self, name: &str, settings: &[&str]) -> Result<()> {
        self.server(name)?.settings = owned(settings);
        self.bring_up("start", name, "")
    }

    /// Makes a new server that is a standby of another, under its own name, and waits until it
    /// streams. It talks to its primary directly, unless the settings hold a `primary_conninfo`,
    /// which has to contain `application_name=` and its name.
    ///
    /// For commits to wait for it, it has to be in the primary's `synchronous_standby_names`; see
    /// [`sync_names`](Self::sync_names).
    ///
    /// # Errors
    /// If the other server does not run, or the standby does not start.
    pub fn standby(&mut self, name: &str, of: &str, settings: &[&str]) -> Result<()> {
        self.server(name)?.settings = owned(settings);
        self.rebuild(name, of)
    }

    /// Discards the data of a server, in whatever way it ends, and makes it a standby of another
    /// one. Its settings stay.
    ///
    /// # Errors
    /// If the other server does not run, or the standby does not start.
    pub fn rebuild(&mut self, name: &str, of: &str) -> Result<()> {
        let primary = self.port(of)?;
        let server = self.server(name)?;
        server.primary = Some(of.to_owned());
        server.stalled = false;
        self.bring_up("copy", name, &primary.to_string())
    }

    /// Kills a server, with all of its processes, and waits until they are gone.
    ///
    /// # Errors
    /// If it was never started, or had been stopped.
    pub fn crash(&mut self, name: &str) -> Result<()> {
        self.known(name)?.stalled = false;
        self.order("crash", name, "")
    }

    /// Stops a server as an administrator would, and waits for it.
    ///
    /// # Errors
    /// If it does not run, or does not stop, as with a standby that has stalled.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        self.known(name)?.stalled = false;
        self.order("stop", name, "")
    }

    /// Makes a standby a primary, and waits until it accepts writes. It never gets the writes that
    /// it has not received by now.
    ///
    /// # Errors
    /// If it is not a standby, or does not run.
    pub fn promote(&mut self, name: &str) -> Result<()> {
        let server = self.known(name)?;
        ensure!(server.primary.take().is_some(), "{name} is no standby");
        if server.stalled {
            // The promotion would wait for the process; and awake, the process would first receive
            // the data in flight, even from a dead primary.
            self.crash(name)?;
            self.bring_up("start", name, "")?;
        }
        self.order("promote", name, "")
    }

    /// Makes commits wait for other standbys from now on, also after a restart; `""` is for none.
    /// The value is that of `synchronous_standby_names`. Name the standbys there: `*` stands for
    /// any receiver.
    ///
    /// # Errors
    /// If it does not run.
    pub fn sync_names(&mut self, name: &str, value: &str) -> Result<()> {
        self.known(name)?.sync_names = Some(value.to_owned());
        self.configure(name)?;
        self.order("reload", name, value)
    }

    /// Freezes the process of a standby that receives from the primary. Everything that the primary
    /// acknowledges from now on without waiting for this standby is lost if the standby is
    /// promoted.
    ///
    /// # Errors
    /// If it does not receive.
    pub fn stall_receiver(&mut self, name: &str) -> Result<()> {
        self.order("receiver", name, "STOP")?;
        self.known(name)?.stalled = true;
        Ok(())
    }

    /// Lets a standby receive again.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume_receiver(&mut self, name: &str) -> Result<()> {
        self.known(name)?.stalled = false;
        self.order("receiver", name, "CONT")
    }

    /// Sends a signal to the first process of a server, which accepts connections. `KILL` is a
    /// [`crash`](Self::crash).
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&mut self, signal: &str, name: &str) -> Result<()> {
        if signal == "KILL" {
            return self.crash(name);
        }
        self.order("signal", name, signal)
    }

    /// Sends a signal to all processes of a server: with `STOP` it hangs, until `CONT`.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal_all(&mut self, signal: &str, name: &str) -> Result<()> {
        self.order("signal_all", name, signal)
    }

    /// Returns `true` if a server runs, `false` if it has ended by itself.
    pub fn runs(&self, name: &str) -> bool {
        let process = fs::read_to_string(format!("{}/{name}.pid", self.folder())).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{}/status", process.trim())).unwrap_or_default();
        // A process that is dead but not yet waited for counts as ended.
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
    }

    /// Puts the data of a server into a folder elsewhere, such as a
    /// [`SmallDisk`](crate::servers::SmallDisk), which has to belong to the account that servers
    /// run under. This has to be called before the first start.
    ///
    /// # Errors
    /// If the server already has data, or may not write there.
    pub fn place(&mut self, name: &str, folder: &Path) -> Result<()> {
        self.server(name)?;
        self.order("place", name, &folder.display().to_string())
    }

    /// The port of a server on 127.0.0.1, which stays the same from its first start on.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn port(&self, name: &str) -> Result<u16> {
        Ok(self.servers.get(name).with_context(|| format!("there is no server {name}"))?.port.number())
    }

    /// The URL of a server on 127.0.0.1.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn url(&self, name: &str) -> Result<String> {
        Ok(format!("postgres://postgres@127.0.0.1:{}/postgres", self.port(name)?))
    }

    /// The URL of a server's socket.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn socket_url(&self, name: &str) -> Result<String> {
        let folder = self.folder().replace('/', "%2F");
        Ok(format!("postgres://postgres@{folder}:{}/postgres", self.port(name)?))
    }

    /// The folder of the sockets, the logs (`NAME.log`) and the data (`NAME`).
    pub fn folder(&self) -> &str {
        &self.guardian.folder
    }

    /// A program of Postgres, such as `psql`.
    pub fn program(&self, name: &str) -> Command {
        let mut program = self.account.command(PathBuf::from(&self.found.folder).join(name));
        program.env("LD_LIBRARY_PATH", &self.found.libraries);
        program
    }

    /// The server of this name, created if necessary.
    fn server(&mut self, name: &str) -> Result<&mut Server> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        ensure!(!name.is_empty() && name.chars().all(plain), "not the name of a server: {name:?}");
        if !self.servers.contains_key(name) {
            self.servers.insert(name.to_owned(), Server::new(Port::reserve()?));
        }
        self.known(name)
    }

    fn known(&mut self, name: &str) -> Result<&mut Server> {
        self.servers.get_mut(name).with_context(|| format!("there is no server {name}"))
    }

    /// Starts a server by this order. If another program listens on its port, which was reserved
    /// but not published, it gets another one, unless the port is already published.
    fn bring_up(&mut self, order: &str, name: &str, words: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            self.configure(name)?;
            let started = self.order(order, name, words);
            let server = self.known(name)?;
            let Err(error) = started else {
                server.has_run = true;
                return Ok(());
            };
            tries += 1;
            if server.has_run || tries == 5 || !format!("{error:#}").contains("could not bind") {
                return Err(error);
            }
            server.port = Port::reserve()?;
        }
    }

    /// Writes the configuration of a server to a file, because options on the command line cannot
    /// be changed later.
    fn configure(&self, name: &str) -> Result<()> {
        let file = Path::new(self.folder()).join(format!("{name}.conf"));
        let server = self.servers.get(name).with_context(|| format!("there is no server {name}"))?;
        let primary = server.primary.as_deref().map(|primary| self.port(primary)).transpose()?;
        let configuration = server.configuration(name, self.folder(), primary);
        fs::write(&file, configuration).with_context(|| format!("could not write {}", file.display()))
    }

    fn order(&mut self, order: &str, name: &str, words: &str) -> Result<()> {
        let port = self.port(name)?;
        let order = format!("{order} {name} {port} {words}");
        self.guardian.order(&order).with_context(|| format!("postgres: {order}"))
    }
}

fn owned(settings: &[&str]) -> Vec<String> {
    settings.iter().map(|setting| (*setting).to_owned()).collect()
}
