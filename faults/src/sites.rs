//! The servers of all rounds. Most are started once, and emptied for each round.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::ports::Port;
use testkit::servers::PostgresServers;
use testkit::servers::RedisServers;
use testkit::servers::SmallDisk;
use tokio_postgres::{Client, NoTls};

use crate::redis_cluster::RedisCluster;
use crate::scenario::Place;

/// The size of a disk for a new Postgres database and some WAL segments, or for a SQLite file.
const DISK_OF_POSTGRES_BYTES: u64 = 256 << 20;
const DISK_OF_SQLITE_BYTES: u64 = 64 << 20;
/// The time limit for the recovery of a server.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

const ALONE: [&str; 1] = ["max_connections=300"];
const ON_SMALL_DISK: [&str; 3] = ["max_connections=100", "max_wal_size=64MB", "min_wal_size=32MB"];

/// The Redis that does not belong to a cluster.
const HOT: &str = "hot";

/// The servers.
#[derive(Default)]
pub(crate) struct Sites {
    postgres: Option<PostgresServers>,
    started: Vec<&'static str>,
    /// The current primary of each pair, by the first primary.
    primary: BTreeMap<&'static str, &'static str>,
    redis: Option<(RedisServers, Port)>,
    cluster: Option<RedisCluster>,
    /// The disks, keyed by whether they belong to Postgres: a full disk must not end the other.
    disks: BTreeMap<bool, SmallDisk>,
}

impl Sites {
    pub(crate) fn postgres(&mut self) -> Result<&mut PostgresServers> {
        if self.postgres.is_none() {
            self.postgres = Some(PostgresServers::new()?);
        }
        self.postgres.as_mut().context("there is no Postgres")
    }

    /// Starts a standalone server, unless it runs, and returns its address.
    pub(crate) fn alone(&mut self, name: &'static str) -> Result<SocketAddr> {
        if !self.started.contains(&name) {
            self.postgres()?.start(name, &ALONE)?;
            self.started.push(name);
        }
        self.address(name)
    }

    /// The same for a server whose disk can be filled.
    pub(crate) fn on_small_disk(&mut self, name: &'static str) -> Result<SocketAddr> {
        if !self.started.contains(&name) {
            let folder = self.disk(Place::PostgresOnSmallDisk)?.path().to_owned();
            self.postgres()?.place(name, &folder)?;
            self.postgres()?.start(name, &ON_SMALL_DISK)?;
            self.started.push(name);
        }
        self.address(name)
    }

    /// Starts a primary and its standby, and returns the primary first.
    pub(crate) fn pair(
        &mut self,
        first: &'static str,
        second: &'static str,
        waits: bool,
    ) -> Result<[SocketAddr; 2]> {
        if !self.started.contains(&first) {
            let names = format!(
                "synchronous_standby_names={}",
                if waits { format!("{first},{second}") } else { String::new() }
            );
            let settings = ["max_connections=300", names.as_str()];
            self.postgres()?.start(first, &settings)?;
            self.postgres()?.standby(second, first, &settings)?;
            self.started.push(first);
            self.primary.insert(first, first);
        }
        Ok([self.address(first)?, self.address(second)?])
    }

    /// Promotes the standby, and makes the old primary its standby.
    pub(crate) fn promote(&mut self, pair: [&'static str; 2]) -> Result<()> {
        let old = *self.primary.get(pair[0]).context("there is no primary")?;
        let new = if old == pair[0] { pair[1] } else { pair[0] };
        let postgres = self.postgres()?;
        postgres.crash(old)?;
        postgres.promote(new)?;
        postgres.rebuild(old, new)?;
        self.primary.insert(pair[0], new);
        Ok(())
    }

    fn address(&mut self, name: &str) -> Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, self.postgres()?.port(name)?).into())
    }

    /// Kills a server, and restarts it.
    pub(crate) fn restart(&mut self, name: &str) -> Result<()> {
        let postgres = self.postgres()?;
        postgres.crash(name)?;
        postgres.start(name, &ALONE)
    }

    /// Restarts a server if it has ended by itself, as it does when its WAL does not fit on its
    /// disk.
    pub(crate) fn revive(&mut self, name: &str) -> Result<()> {
        let postgres = self.postgres()?;
        match postgres.runs(name) {
            true => Ok(()),
            false => postgres.start(name, &ON_SMALL_DISK),
        }
    }

    /// Starts the Redis in front of a store, and returns its address.
    pub(crate) fn hot(&mut self) -> Result<SocketAddr> {
        if self.redis.is_none() {
            let mut servers = RedisServers::new()?;
            let port = Port::reserve()?;
            let settings = format!("--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync always");
            servers.start(HOT, &settings)?;
            self.redis = Some((servers, port));
        }
        let (_, port) = self.redis.as_ref().context("there is no Redis")?;
        Ok(port.address())
    }

    pub(crate) fn signal_hot(&mut self, signal: &str) -> Result<()> {
        self.redis.as_mut().context("there is no Redis")?.0.signal(signal, HOT)
    }

    pub(crate) fn restart_hot(&mut self) -> Result<()> {
        self.signal_hot("KILL")?;
        self.redis.as_mut().context("there is no Redis")?.0.start_again(HOT)
    }

    pub(crate) fn flush_hot(&mut self) -> Result<()> {
        let (servers, port) = self.redis.as_ref().context("there is no Redis")?;
        let mut program = servers.program("redis-cli");
        let output = program
            .args(["-p", &port.to_string(), "flushall"])
            .output()
            .context("could not run `redis-cli`")?;
        ensure!(output.status.success(), "Redis was not flushed");
        Ok(())
    }

    pub(crate) fn cluster(&mut self) -> Result<&mut RedisCluster> {
        if self.cluster.is_none() {
            self.cluster = Some(RedisCluster::start()?);
        }
        self.cluster.as_mut().context("there is no cluster")
    }

    pub(crate) fn disk(&mut self, place: Place) -> Result<&SmallDisk> {
        let of_postgres = place == Place::PostgresOnSmallDisk;
        let bytes = if of_postgres { DISK_OF_POSTGRES_BYTES } else { DISK_OF_SQLITE_BYTES };
        Ok(match self.disks.entry(of_postgres) {
            Entry::Occupied(disk) => disk.into_mut(),
            Entry::Vacant(none) => none.insert(SmallDisk::new(bytes)?),
        })
    }
}

/// The URL of a database; with several servers, of the one that accepts writes.
pub(crate) fn url(servers: &[SocketAddr], database: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(ToString::to_string).collect();
    format!(
        "postgres://postgres@{}/{database}?target_session_attrs=read-write&connect_timeout=2",
        hosts.join(",")
    )
}

/// A connection for the harness itself, as soon as the server accepts one.
pub(crate) async fn connect(servers: &[SocketAddr], database: &str) -> Result<Client> {
    let began = Instant::now();
    loop {
        match tokio_postgres::connect(&url(servers, database), NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return Ok(client);
            }
            Err(error) if began.elapsed() > RECOVERY_LIMIT => {
                return Err(error).context("Postgres does not come back");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
