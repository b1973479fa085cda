//! Servers of Redis that tests start, stop and kill.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::packages::{Account, Found, find};
use crate::ports::Port;
use crate::servers::guardian::Guardian;
use crate::servers::redis::REDIS;

/// Servers of Redis that run until this is dropped, or the process ends.
pub struct RedisServers {
    guardian: Guardian,
    account: Account,
    found: Found,
    /// The settings of each server.
    settings: BTreeMap<String, String>,
    /// The ports of clusters.
    ports: Vec<Port>,
}

impl RedisServers {
    /// An empty set of servers.
    ///
    /// # Errors
    /// If Redis is not installed and cannot be.
    pub fn new() -> Result<Self> {
        let account = Account::detect()?;
        let found = find(&REDIS, &account)?;
        let mut shell = account.command("sh");
        shell.args(["-c", include_str!("servers.sh"), "testkit"]);
        shell.env("REDIS_FOLDER", &found.folder).env("REDIS_LIBRARIES", &found.libraries);
        Ok(Self {
            guardian: Guardian::start(&mut shell)?,
            account,
            found,
            settings: BTreeMap::new(),
            ports: Vec::new(),
        })
    }

    /// Starts a server, for the first time or again, with settings such as `--appendonly yes`, and
    /// returns the URL of its socket.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(&mut self, name: &str, settings: &str) -> Result<String> {
        // Unless the settings name a port, the server has none.
        let port = if settings.contains("port ") { "" } else { "--port 0 " };
        let settings = format!("{port}{settings}");
        self.guardian.order(&format!("start {name} {settings}"))?;
        self.settings.insert(name.to_owned(), settings);
        Ok(format!("redis+unix://{}/{name}.sock", self.folder()))
    }

    /// Starts a server that has ended, with the settings that it had.
    ///
    /// # Errors
    /// If it was never started, or does not start.
    pub fn start_again(&mut self, name: &str) -> Result<()> {
        let settings = self.settings.get(name).with_context(|| format!("there was no Redis {name}"))?;
        self.guardian.order(&format!("start {name} {settings}"))
    }

    /// Sends a signal to a server, and waits for its end if the signal is `KILL`.
    ///
    /// # Errors
    /// If it was not running.
    pub fn signal(&mut self, signal: &str, name: &str) -> Result<()> {
        self.guardian.order(&format!("signal {signal} {name}"))
    }

    /// The folder of the sockets and the data of the servers.
    pub fn folder(&self) -> &str {
        &self.guardian.folder
    }

    /// A program of Redis, such as `redis-cli`.
    pub fn program(&self, name: &str) -> Command {
        let mut program = self.account.command(PathBuf::from(&self.found.folder).join(name));
        program.env("LD_LIBRARY_PATH", &self.found.libraries);
        program
    }

    /// Starts a cluster with a replica for each of three masters. The names of the servers are
    /// `node0` to `node5`; their ports on 127.0.0.1 are returned.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_cluster(&mut self, settings: &str) -> Result<[u16; 6]> {
        let (clients, buses) = (Port::several::<6>()?, Port::several::<6>()?);
        for (number, (port, bus)) in clients.iter().zip(&buses).enumerate() {
            self.start(
                &format!("node{number}"),
                &format!(
                    "--port {port} --bind 127.0.0.1 --cluster-enabled yes --cluster-port {bus} \
                     --cluster-node-timeout 1000 --cluster-config-file nodes.conf {settings}"
                ),
            )?;
        }
        let mut create = self.program("redis-cli");
        create.args(["--cluster", "create"]).args(clients.iter().map(|port| format!("127.0.0.1:{port}")));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let output = create.output().context("could not run `redis-cli`")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-cli could not make a cluster: {said}");
        for number in 0..6 {
            self.await_cluster(&format!("node{number}"))?;
        }
        let numbers = clients.each_ref().map(Port::number);
        self.ports.extend(clients.into_iter().chain(buses));
        Ok(numbers)
    }

    /// Waits until a server of a cluster sees a healthy cluster, and has its replica or its master.
    fn await_cluster(&self, name: &str) -> Result<()> {
        let socket = format!("{}/{name}.sock", self.folder());
        let began = Instant::now();
        loop {
            let mut ask = self.program("redis-cli");
            ask.args([
                "-s",
                &socket,
                "eval",
                "return redis.call('CLUSTER', 'INFO') .. redis.call('INFO', 'replication')",
                "0",
            ]);
            let said = String::from_utf8_lossy(&ask.output().context("could not run `redis-cli`")?.stdout)
                .into_owned();
            let has_peer = said.contains("connected_slaves:1") || said.contains("master_link_status:up");
            if said.contains("cluster_state:ok") && has_peer {
                return Ok(());
            }
            ensure!(began.elapsed() < Duration::from_secs(60), "{name} is not part of a cluster yet: {said}");
            sleep(Duration::from_millis(50));
        }
    }
}
