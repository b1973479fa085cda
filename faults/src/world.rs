//! The processes of a round, the proxies between them, and the store behind them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use semel::{PostgresStore, SqliteStore};
use tempfile::TempDir;
use testkit::ports::Port;
use tokio::net::UnixStream;
use tokio::task::block_in_place;
use tokio::time::{Duration, sleep};

use crate::checker::Policy;
use crate::process::{Process, Program};
use crate::programs::{Programs, Stage, Urls};
use crate::proxy::Proxy;
use crate::scenario::{Front, Place, Scenario};
use crate::sites::{self, Sites};
use crate::transaction;

/// The length of a lease in every round.
pub(crate) const LEASE_MS: u64 = 1_000;

/// The number of processes that clients can use.
const PROCESSES: usize = 2;

/// The names of the Postgres servers.
pub(crate) const MAIN: &str = "main";
pub(crate) const SMALL: &str = "small";
pub(crate) const SYNC: [&str; 2] = ["sync_a", "sync_b"];
pub(crate) const ASYNC: [&str; 2] = ["async_a", "async_b"];

/// SQL that makes commits of takeovers slow, once for each transaction. The rows stay locked during
/// the commit.
const SLOW_TAKEOVERS: &str = "
create function take_time() returns trigger language plpgsql as $$
begin
    if current_setting('faults.took_time', true) is distinct from 'yes' then
        perform set_config('faults.took_time', 'yes', true);
        perform pg_sleep(0.8);
    end if;
    return null;
end
$$;
create constraint trigger slow_takeovers after update on semel.records deferrable initially deferred for each row
    when (old.state = 'running' and new.attempt > old.attempt) execute function take_time()";

/// The running parts of a round.
pub(crate) struct World {
    pub(crate) folder: PathBuf,
    /// The processes that clients call.
    pub(crate) processes: Vec<Process>,
    /// The services behind gateways.
    pub(crate) upstreams: Vec<Process>,
    /// The proxies between clients and processes.
    pub(crate) doors: Vec<Proxy>,
    /// The proxies between processes and the store; those to Postgres first, grouped by process.
    pub(crate) roads: Vec<Proxy>,
    /// The Postgres servers behind those proxies, and the database there.
    pub(crate) postgres: Vec<SocketAddr>,
    pub(crate) database: String,
    /// The file with the offset of the application's clock.
    pub(crate) clock: PathBuf,
    _ledger: Process,
    /// The ports of the processes, which stay the same over restarts.
    ports: [Port; 2 * PROCESSES],
    /// The folder of the ledger's socket, whose path has to be short.
    socket: TempDir,
}

impl World {
    /// Starts all parts.
    pub(crate) async fn start(
        scenario: &Scenario,
        sites: &mut Sites,
        programs: &Programs,
        folder: &Path,
        number: u64,
    ) -> Result<Self> {
        let socket = tempfile::Builder::new().prefix("semel-ledger-").tempdir_in("/tmp")?;
        let mut world = Self {
            folder: folder.to_owned(),
            processes: Vec::new(),
            upstreams: Vec::new(),
            doors: Vec::new(),
            roads: Vec::new(),
            postgres: Vec::new(),
            database: format!("round_{number}"),
            clock: folder.join("clock"),
            _ledger: ledger(programs, folder, socket.path()).await?,
            ports: Port::several()?,
            socket,
        };
        std::fs::write(&world.clock, "+0\n")?;
        let urls = world.open(scenario, sites).await?;
        let addresses = world.ports.each_ref().map(Port::address);
        let (fronts, backs) = addresses.split_at(PROCESSES);
        let ledger = ledger_socket(world.socket.path());
        let clock = world.clock.clone();
        let stage = Stage { scenario, folder, ledger: &ledger, clock: &clock, urls: &urls };
        for (index, (front, back)) in fronts.iter().zip(backs).enumerate() {
            let program = match scenario.front {
                Front::Layer => programs.service(&stage, index, *front, true)?,
                Front::Gateway => {
                    let upstream = programs.service(&stage, index, *back, false)?;
                    world.upstreams.push(Process::start(upstream).await?);
                    programs.gateway(&stage, index, *front, *back)?
                }
            };
            world.processes.push(Process::start(program).await?);
            world.doors.push(Proxy::to(*front).await?);
        }
        Ok(world)
    }

    /// Ends all parts, and removes the data.
    pub(crate) async fn end(self, scenario: &Scenario, sites: &mut Sites) -> Result<()> {
        let processes = self.processes.iter().chain(&self.upstreams);
        if let Some(trouble) = processes.filter_map(Process::trouble).next() {
            bail!("a process {trouble}");
        }
        for log in self.files("log")? {
            let said = std::fs::read_to_string(&log)?;
            ensure!(!said.contains("panicked at"), "somebody panicked; see {}", log.display());
        }
        drop((self.processes, self.upstreams, self.roads));
        if !self.postgres.is_empty() {
            let client = sites::connect(&self.postgres, "postgres").await?;
            client.batch_execute(&format!("drop database {} with (force)", self.database)).await?;
        }
        if scenario.place == Place::SqliteOnSmallDisk {
            std::fs::remove_dir_all(sites.disk(scenario.place)?.path().join(&self.database))?;
        }
        Ok(())
    }

    /// The addresses that clients call.
    pub(crate) fn targets(&self) -> Arc<[SocketAddr]> {
        self.doors.iter().map(Proxy::address).collect()
    }

    /// The logs of all handlers, one for each life, because the last line of a log may be cut off.
    pub(crate) fn handler_logs(&self) -> Result<Vec<PathBuf>> {
        self.files("steps")
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let is_one = |path: &PathBuf| path.extension().is_some_and(|kind| kind == extension);
            files.extend(Some(entry?.path()).filter(is_one));
        }
        Ok(files)
    }

    async fn open(&mut self, scenario: &Scenario, sites: &mut Sites) -> Result<Urls> {
        let stores = match scenario.place {
            Place::Postgres | Place::Tiered | Place::TieredCluster => {
                let server = block_in_place(|| sites.alone(MAIN))?;
                self.open_postgres(&[server], scenario).await?
            }
            Place::PostgresOnSmallDisk => {
                let server = block_in_place(|| sites.on_small_disk(SMALL))?;
                self.open_postgres(&[server], scenario).await?
            }
            Place::SyncPair => {
                let pair = block_in_place(|| sites.pair(SYNC[0], SYNC[1], true))?;
                self.open_postgres(&pair, scenario).await?
            }
            Place::AsyncPair => {
                let pair = block_in_place(|| sites.pair(ASYNC[0], ASYNC[1], false))?;
                self.open_postgres(&pair, scenario).await?
            }
            Place::Sqlite => vec![open_sqlite(&self.folder).await?],
            Place::SqliteOnSmallDisk => {
                let disk = block_in_place(|| sites.disk(scenario.place))?.path().join(&self.database);
                std::fs::create_dir(&disk)?;
                vec![open_sqlite(&disk).await?]
            }
            Place::Redis => vec![self.open_hot(sites).await?],
            Place::RedisCluster => vec![block_in_place(|| {
                let cluster = sites.cluster()?;
                cluster.flush()?;
                anyhow::Ok(cluster.url())
            })?],
        };
        let cache = match scenario.place {
            Place::Tiered => Some(self.open_hot(sites).await?),
            Place::TieredCluster => Some(block_in_place(|| {
                let cluster = sites.cluster()?;
                cluster.flush()?;
                anyhow::Ok(cluster.url())
            })?),
            _ => None,
        };
        Ok(Urls { stores, cache })
    }

    /// Empties the standalone Redis, and starts a proxy to it.
    async fn open_hot(&mut self, sites: &mut Sites) -> Result<String> {
        let server = block_in_place(|| {
            let server = sites.hot()?;
            sites.flush_hot()?;
            anyhow::Ok(server)
        })?;
        let road = Proxy::to(server).await?;
        let url = format!("redis://{}", road.address());
        self.roads.push(road);
        Ok(url)
    }

    /// Creates a database on these servers, and starts a proxy for each process.
    async fn open_postgres(&mut self, servers: &[SocketAddr], scenario: &Scenario) -> Result<Vec<String>> {
        self.postgres = servers.to_vec();
        let client = sites::connect(servers, "postgres").await?;
        client.batch_execute(&format!("create database {}", self.database)).await?;
        let client = sites::connect(servers, &self.database).await?;
        if scenario.policy == Policy::Transactional {
            transaction::prepare(&client).await?;
        }
        PostgresStore::connect(&sites::url(servers, &self.database)).await?.migrate().await?;
        if scenario.reconciles() {
            client.batch_execute(SLOW_TAKEOVERS).await?;
        }
        let mut urls = Vec::new();
        for _ in 0..PROCESSES {
            let mut ways = Vec::new();
            for server in servers {
                let road = Proxy::to(*server).await?;
                ways.push(road.address());
                self.roads.push(road);
            }
            urls.push(sites::url(&ways, &self.database));
        }
        Ok(urls)
    }
}

async fn open_sqlite(folder: &Path) -> Result<String> {
    let file = folder.join("semel.db");
    SqliteStore::open(&file).await?.migrate().await?;
    Ok(format!("sqlite:{}", file.display()))
}

fn ledger_socket(folder: &Path) -> PathBuf {
    folder.join("sock")
}

pub(crate) fn ledger_file(folder: &Path) -> PathBuf {
    folder.join("ledger")
}

/// Starts the ledger, which has no faults.
async fn ledger(programs: &Programs, folder: &Path, short: &Path) -> Result<Process> {
    let (socket, file) = (ledger_socket(short), ledger_file(folder));
    let args = ["ledger".into(), "--listen".into(), socket.clone().into(), "--file".into(), file.into()];
    let program = Program {
        name: "ledger".to_owned(),
        path: programs.faults.clone(),
        args: args.to_vec(),
        environment: Vec::new(),
        output: folder.join("ledger.log"),
        listen: None,
    };
    let process = Process::start(program).await?;
    for _ in 0..500 {
        if UnixStream::connect(&socket).await.is_ok() {
            return Ok(process);
        }
        sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("the ledger did not start")
}
