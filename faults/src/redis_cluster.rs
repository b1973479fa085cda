//! A Redis cluster whose masters are killed, with or without data that only they have.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::servers::RedisServers;

const MASTERS: usize = 3;
/// The time limit for the cluster to recover.
const LIMIT: Duration = Duration::from_secs(60);

/// Three masters, and a replica of each.
pub(crate) struct RedisCluster {
    servers: RedisServers,
    ports: [u16; 6],
}

impl RedisCluster {
    pub(crate) fn start() -> Result<Self> {
        let mut servers = RedisServers::new()?;
        let ports = servers.start_cluster("")?;
        Ok(Self { servers, ports })
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    fn ask(&self, node: usize, question: &[&str]) -> Result<String> {
        let mut program = self.servers.program("redis-cli");
        program.args(["-h", "127.0.0.1", "-p", &self.ports[node].to_string()]).args(question);
        let output = program.output().context("could not run `redis-cli`")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A master and its connected replica.
    fn pair(&self) -> Result<(usize, usize)> {
        let began = Instant::now();
        loop {
            for replica in 0..self.ports.len() {
                let said = self.ask(replica, &["info", "replication"])?;
                if !said.contains("master_link_status:up") {
                    continue;
                }
                let port =
                    said.lines().find_map(|line| line.strip_prefix("master_port:")?.trim().parse().ok());
                if let Some(master) = self.ports.iter().position(|of| Some(*of) == port) {
                    return Ok((master, replica));
                }
            }
            ensure!(began.elapsed() < LIMIT, "no master of the cluster has a replica");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Disconnects a replica from its master so that it receives no more data, and returns both.
    pub(crate) fn stop_replication(&mut self) -> Result<(usize, usize)> {
        let (master, replica) = self.pair()?;
        self.servers.signal("STOP", &node(replica))?;
        // Without this, the replica would read what the master has sent into its socket.
        self.ask(master, &["client", "kill", "type", "replica"])?;
        Ok((master, replica))
    }

    /// Kills a master, waits until its replica is promoted, and restarts the master as a replica.
    pub(crate) fn fail_over(&mut self, (master, replica): (usize, usize)) -> Result<()> {
        self.servers.signal("KILL", &node(master))?;
        self.servers.signal("CONT", &node(replica))?;
        let began = Instant::now();
        while !self.ask(replica, &["info", "replication"])?.contains("role:master") {
            ensure!(began.elapsed() < LIMIT, "the replica was not promoted");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.servers.start_again(&node(master))?;
        while !self.ask(replica, &["cluster", "info"])?.contains("cluster_state:ok") {
            ensure!(began.elapsed() < LIMIT, "the cluster did not recover");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills a random master, and waits until its replica is promoted.
    pub(crate) fn fail_any_over(&mut self) -> Result<()> {
        let pair = self.pair()?;
        self.fail_over(pair)
    }

    /// Removes all data from the cluster.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut flushed = 0;
        for node in 0..self.ports.len() {
            // A replica refuses the command, and receives it from its master.
            flushed += usize::from(self.ask(node, &["flushall"])?.trim() == "OK");
        }
        ensure!(flushed == MASTERS, "{flushed} masters were flushed");
        Ok(())
    }
}

fn node(number: usize) -> String {
    format!("node{number}")
}
