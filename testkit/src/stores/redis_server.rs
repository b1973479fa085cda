//! Servers for a single test, and plain connections to them.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue, cmd};
use semel::StoreError;

use crate::servers::RedisServers;
use crate::stores::redis::Place;
use crate::until::until;

/// The time that a store waits for an answer of a server that will not answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A server that a test may stop, kill and start again.
pub struct Server {
    servers: RedisServers,
    settings: String,
    /// The URL of its socket.
    pub url: String,
}

impl Server {
    /// A server with settings such as `--appendonly yes`.
    pub fn start(settings: &str) -> Self {
        let mut servers = RedisServers::new().unwrap();
        let url = servers.start("redis", settings).unwrap();
        Self { servers, settings: settings.to_owned(), url }
    }

    /// A place on it.
    pub fn place(&self) -> Place {
        Place::on(&self.url)
    }

    /// A plain connection to it.
    pub async fn connection(&self) -> MultiplexedConnection {
        connection(&self.url).await
    }

    /// Stops its process without ending it.
    pub fn freeze(&mut self) {
        self.servers.signal("STOP", "redis").unwrap();
    }

    /// Resumes its process.
    pub fn go_on(&mut self) {
        self.servers.signal("CONT", "redis").unwrap();
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        self.servers.signal("KILL", "redis").unwrap();
    }

    /// Starts it with the settings that it had.
    pub fn start_again(&mut self) {
        self.servers.start("redis", &self.settings).unwrap();
    }
}

/// A plain connection.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let mut connected = None;
    until("a plain connection is there", async || {
        connected = Client::open(url).unwrap().get_multiplexed_async_connection().await.ok();
        connected.is_some()
    })
    .await;
    connected.unwrap()
}

/// The answer of a server to a command whose words have no spaces.
pub async fn say<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut asked = cmd(words.next().unwrap());
    asked.arg(words.collect::<Vec<_>>());
    asked.query_async(connection).await.unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// The answer once the store has recovered. Every error in between has to be transient.
pub async fn settled<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let mut answer = None;
    until("the store has found back", async || {
        match ask().await {
            Ok(some) => answer = Some(some),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        answer.is_some()
    })
    .await;
    answer.unwrap()
}
