//! A connection to one server.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Fuse;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, InfoDict, Pipeline, RedisConnectionInfo, RedisError, Value,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::scripts;
use crate::runtime::waking::Attention;
use crate::store::redis::address::{Address, Place};
use crate::store::redis::errors;
use crate::store::redis::options::RedisOptions;
use crate::store::shared::time_limit;
use crate::words::error::StoreError;

/// The oldest supported version.
const MIN_VERSION: u32 = 7;

/// A connection to one server that accepts writes, with the scripts loaded.
pub(crate) struct Session {
    line: Line,
    end: End,
    pub(crate) address: Address,
    pub(crate) server: Server,
}

/// The other end of a connection, as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// The run of the server, which changes with each restart.
    run: String,
    client: i64,
}

/// The server's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) is_cluster: bool,
    pub(crate) replicas: u64,
    /// Set if a restart finds the written data, at least most of it.
    pub(crate) persists: bool,
}

impl Session {
    /// Connects to the server that the options lead to.
    pub(crate) async fn open(options: &RedisOptions) -> Result<Self, StoreError> {
        match &options.place {
            Place::Server(address) => Self::at(options, address).await,
            Place::Cluster(addresses) => first(addresses, |address| Self::at(options, address)).await,
            Place::Sentinels { sentinels, service } => {
                let master = first(sentinels, |sentinel| master(options, sentinel, service)).await?;
                Self::at(options, &master).await
            }
        }
    }

    /// Connects to this server.
    pub(crate) async fn at(options: &RedisOptions, address: &Address) -> Result<Self, StoreError> {
        within(options.timeout, address, async {
            let mut line = Line::open(options, address, &options.login).await?;
            let mut greeting = Pipeline::new();
            greeting.cmd("CLIENT").arg("ID").cmd("INFO");
            // The number belongs to no client. A role that may not use this command is refused now,
            // and not when a connection is lost.
            greeting.cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX);
            for script in scripts::all() {
                greeting.add_command(script.load());
            }
            let mut answers = line.ask(&greeting).await?.into_iter();
            let client = parse(answers.next(), address)?;
            let info: InfoDict = parse(answers.next(), address)?;
            let _killed: i64 = parse(answers.next(), address)?;
            for loaded in answers {
                let _hash: String = parse(Some(loaded), address)?;
            }
            let server = examine(&info, options, address)?;
            let end = End { run: info.get("run_id").unwrap_or_default(), client };
            Ok(Self { line, end, address: address.clone(), server })
        })
        .await
    }

    /// Sends commands, and returns an answer for each; refusals count as answers.
    pub(crate) async fn send(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.line.send(commands).await
    }

    /// The end that has to be terminated when this connection is lost.
    pub(crate) fn into_end(self) -> End {
        self.end
    }

    /// Makes sure that nothing that was sent over a lost connection can be applied any more. If its
    /// server was restarted since, or is another one, there is nothing to do.
    pub(crate) async fn bury(&mut self, lost: &End) -> Result<(), StoreError> {
        if lost.run != self.end.run {
            return Ok(());
        }
        let mut kill = Pipeline::new();
        kill.cmd("CLIENT").arg("KILL").arg("ID").arg(lost.client);
        let killed = self.line.ask(&kill).await?.into_iter().next();
        parse::<i64>(killed, &self.address).map(drop)
    }
}

/// The first answer of several servers; without one, the error of the last server.
async fn first<'a, T, F>(addresses: &'a [Address], ask: impl Fn(&'a Address) -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failed = StoreError::refused("there is no server to ask");
    for address in addresses {
        match ask(address).await {
            Ok(answer) => return Ok(answer),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The address of the master of a service, according to a sentinel.
async fn master(options: &RedisOptions, sentinel: &Address, service: &str) -> Result<Address, StoreError> {
    within(options.timeout, sentinel, async {
        let mut line = Line::open(options, sentinel, &options.sentinel_login).await?;
        let mut question = Pipeline::new();
        question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        let answer = line.ask(&question).await?.into_iter().next();
        let master: Option<(String, u16)> = parse(answer, sentinel)?;
        let unknown =
            || StoreError::refused(format!("the sentinel at {sentinel} knows no service {service:?}"));
        master.map(|(host, port)| Address::Tcp(host, port)).ok_or_else(unknown)
    })
    .await
}

/// The slots of a cluster and their servers: first, last, master.
pub(crate) async fn slots(
    options: &RedisOptions,
    address: &Address,
) -> Result<Vec<(u16, u16, Address)>, StoreError> {
    within(options.timeout, address, async {
        let mut line = Line::open(options, address, &options.login).await?;
        let mut question = Pipeline::new();
        question.cmd("CLUSTER").arg("SLOTS");
        let answer = line.ask(&question).await?.into_iter().next();
        let ranges: Vec<Vec<Value>> = parse(answer, address)?;
        let range = |range: Vec<Value>| {
            let mut parts = range.into_iter();
            let (from, to) = (parse(parts.next(), address)?, parse(parts.next(), address)?);
            let mut master = parse::<Vec<Value>>(parts.next(), address)?.into_iter();
            let host: Option<String> = parse(master.next(), address)?;
            let port = parse(master.next(), address)?;
            // A server that does not know its own name leaves it out.
            let master = match (host.filter(|host| !host.is_empty()), address) {
                (None, Address::Tcp(host, _)) => Address::Tcp(host.clone(), port),
                (host, _) => Address::Tcp(host.unwrap_or_default(), port),
            };
            Ok((from, to, master))
        };
        ranges.into_iter().map(range).collect()
    })
    .await
}

/// Refuses a server that must not hold records, and reads the properties that are worth a warning.
fn examine(info: &InfoDict, options: &RedisOptions, address: &Address) -> Result<Server, StoreError> {
    let is = |name: &str, value: &str| info.get::<String>(name).is_some_and(|found| found == value);
    let version: String = info.get("redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < MIN_VERSION) {
        // Older servers do not name the kind of a script's error, so that a full memory could not
        // be distinguished from a fault.
        return Err(StoreError::refused(format!(
            "Redis at {address} is version {version}; {MIN_VERSION}.0 or newer is required"
        )));
    }
    let is_cluster = is("cluster_enabled", "1");
    if matches!(options.place, Place::Cluster(_)) && !is_cluster {
        // Each of several independent servers would grant what another one has granted.
        return Err(StoreError::refused(format!("Redis at {address} is not part of a cluster")));
    }
    // A replica of a cluster redirects every client to its master.
    if !is("role", "master") && !is_cluster {
        return Err(StoreError::unavailable(format!(
            "Redis at {address} is a replica, which accepts no writes"
        )));
    }
    let policy: String = info.get("maxmemory_policy").unwrap_or_default();
    if policy != "noeviction" && !options.eviction_allowed {
        return Err(StoreError::refused(format!(
            "Redis at {address} may evict records (maxmemory-policy {policy}), and a key whose record was evicted runs \
             again: set it to noeviction; or allow it (with_eviction_allowed) if this is only the hot store of a tier"
        )));
    }
    Ok(Server {
        is_cluster,
        replicas: info.get("connected_slaves").unwrap_or(0),
        persists: is("aof_enabled", "1"),
    })
}

/// A connection that may lead to any server, including a sentinel or a replica.
struct Line {
    connection: MultiplexedConnection,
    address: Address,
    /// The driver of the connection, which moves its messages. The task that waits for an answer
    /// polls it: a task of its own would be one more to wake.
    driver: Fuse<Pin<Box<dyn Future<Output = ()> + Send>>>,
    attention: Attention,
}

impl Line {
    async fn open(
        options: &RedisOptions,
        address: &Address,
        login: &RedisConnectionInfo,
    ) -> Result<Self, StoreError> {
        let stream = stream(options, address).await.map_err(|e| errors::of_connection(e.into(), address))?;
        // Every question has its own time limit; a timer for each command would be a second one.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connected = MultiplexedConnection::new_with_config(login, stream, config).await;
        let (connection, driver) = connected.map_err(|e| errors::of_connection(e, address))?;
        let driver: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(driver);
        Ok(Self {
            connection,
            address: address.clone(),
            driver: driver.fuse(),
            attention: Attention::default(),
        })
    }

    /// Sends commands, and returns an answer for each; refusals count as answers.
    async fn send(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let Self { connection, driver, attention, .. } = self;
        let mut answers = pin!(connection.send_packed_commands(commands, 0, commands.len()));
        let look = attention.poll(|context| {
            if let Poll::Ready(answers) = answers.as_mut().poll(context) {
                return Poll::Ready(answers);
            }
            // The driver may go on or have ended with the connection; in both cases it may have
            // brought the answer.
            let _ended = driver.poll_unpin(context);
            answers.as_mut().poll(context)
        });
        look.await
    }

    async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let answers = self.send(commands).await;
        answers.map_err(|e| errors::of_connection(e, &self.address))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn stream(options: &RedisOptions, address: &Address) -> std::io::Result<Box<dyn Stream>> {
    let (host, port) = match address {
        Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Tcp(host, port) => (host.as_str(), *port),
    };
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    match &options.tls {
        None => Ok(Box::new(tcp)),
        Some(tls) => {
            let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
            Ok(Box::new(tls.connect(name, tcp).await?))
        }
    }
}

fn parse<T: FromRedisValue>(answer: Option<Value>, address: &Address) -> Result<T, StoreError> {
    let answer = answer.unwrap_or(Value::Nil).extract_error();
    answer
        .and_then(|answer| redis::from_redis_value(answer).map_err(Into::into))
        .map_err(|e| errors::of_connection(e, address))
}

/// The result, if it comes in time.
pub(crate) fn within<T>(
    limit: Duration,
    address: &Address,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    time_limit::within(limit, move || format!("Redis at {address}"), answer)
}
