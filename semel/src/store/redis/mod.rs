//! The store on Redis: a single server, sentinel, or a cluster.
//!
//! - `options`, `address`: the URL and the limits of a store.
//! - `node`, `nodes`: a server with a queue and a clock of its own, and the choice of the server that
//!   holds a key.
//! - `commands`: the command for each item of a primitive.
//! - `batching/`: batches as pipelines of scripts over one connection; `lua/` has the scripts.
//! - `stored`, `name`: a record and its key as Redis holds them.
//! - `scan`: listing and counting.
//! - `hot`: Redis as the hot store of a tier.
//! - `size`: the memory in use and the number of keys.
//! - `errors`: the meaning of a reply that is an error.

mod options;
mod address;
mod node;
mod nodes;
mod commands;
mod batching;
mod stored;
mod name;
mod scan;
mod size;
mod hot;
mod errors;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::{FromRedisValue, Value, from_redis_value};

pub use options::RedisOptions;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::cached_stats::Counted;
use crate::store::shared::group_commit::Lane;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Transactions;
use crate::words::record::Record;
use crate::words::time::Timestamp;
use batching::scripts;
use batching::session::Server;
use name::Name;
use nodes::Nodes;

/// A store in Redis: one Redis key for each record, written by scripts that hold no rule, by the
/// clock of Redis.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::{Once, RedisStore};
///
/// let once = Once::new(RedisStore::connect("redis://localhost").await?);
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
/// The promises hold as far as Redis keeps its data. A **failover** loses the writes that the
/// promoted replica had not received yet: keys that were granted are granted again, and recorded
/// outcomes are lost. A flush, an eviction, and a restart without persistence lose data as well.
/// Where a double run costs money, put Redis in front of Postgres: [`Tiered`](crate::Tiered). See
/// docs/redis.md.
///
/// The operations of all callers go through a queue to a few connections, and operations that wait
/// when a connection is free are sent together. Clones share the queue and the connections.
///
/// It has the methods of [`Store`](crate::Store), such as `find` and `claim`, and those of
/// [`Inspect`](crate::admin::Inspect) for operators, such as `list`, `resolve` and `stats`.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: Arc<RedisOptions>,
    nodes: Arc<Nodes>,
    counted: Counted,
}

impl RedisStore {
    /// Connects to the server of a URL, with the default options; see [`RedisOptions::new`].
    ///
    /// # Errors
    /// Unavailable if no server can be reached, or only a replica; refused if it rejects the login,
    /// or may evict records.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        RedisOptions::new(url)?.connect().await
    }

    async fn with_options(options: RedisOptions) -> Result<Self, StoreError> {
        options.check()?;
        let options = Arc::new(options);
        let (nodes, server) = Nodes::find(Arc::clone(&options)).await?;
        if !options.eviction_allowed {
            warn(&server, options.replicas);
        }
        let (nodes, counted) = (Arc::new(nodes), Counted::default());
        Ok(Self { shared: Arc::new(Shared { options, nodes, counted }) })
    }

    /// Answers the queued operations, accepts no more, and closes the connections.
    pub async fn close(&self) {
        self.shared.nodes.close().await;
    }

    fn name(&self, key: &Key) -> Name {
        Name::new(&self.shared.options.prefix, key)
    }

    /// The argument that makes a shown record wait for the replicas: an attempt may act on it, so
    /// the replicas must have it, whichever attempt wrote it.
    fn again(&self) -> &'static str {
        if self.shared.options.replicas > 0 { "again" } else { "" }
    }

    /// Sends each item, and returns the answers in their order.
    async fn run_all<'a, I, T, F>(
        &self,
        items: &'a [I],
        run: impl Fn(&'a I) -> F,
    ) -> Result<Answers<T>, StoreError>
    where
        F: Future<Output = Result<(Timestamp, T), StoreError>>,
    {
        let answers = match items {
            [item] => vec![run(item).await],
            _ => join_all(items.iter().map(run)).await,
        };
        // The earliest time counts, so that no record is taken for expired too early.
        let earliest = answers.iter().flatten().map(|(now, _)| *now).min();
        let now = match earliest {
            Some(now) => now,
            None => match self.clock().await {
                Ok(now) => now,
                // The missing clock matters less than the fate of the items; and of all items
                // together no more is known than of the least certain one.
                Err(error) => {
                    let errors = answers.into_iter().filter_map(Result::err);
                    return Err(errors.max_by_key(StoreError::is_unknown).unwrap_or(error));
                }
            },
        };
        Ok(Answers { now, items: answers.into_iter().map(|answer| Ok(answer?.1)).collect() })
    }
}

#[async_trait]
impl Backend for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.shared.nodes.reference()?.now().await
    }

    fn known_clock(&self) -> Option<Timestamp> {
        self.shared.nodes.known_time()
    }

    fn transactions(&self) -> Option<Transactions> {
        None
    }

    fn needs_pruning(&self) -> bool {
        false
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.run_all(asks, |ask| self.open_one(ask)).await
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        self.run_all(items, |item| self.replace_one(item)).await
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        self.run_all(items, |item| self.write_one(item)).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        self.run_all(keys, |key| self.read_one(self.name(key), key.clone(), self.again())).await
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.page(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.counted.or_count(self.count()).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        self.sweep(prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let name = Name::of_secret(&self.shared.options.prefix);
        let command = |_| {
            let mut command = scripts::KEEP.on(name.as_bytes());
            command.arg(expected.unwrap_or_default()).arg(value);
            command
        };
        let said = self.run(Lane::Owner, &name, command).await?;
        match (&*said.word, &*said.rest) {
            ("kept", [Value::BulkString(kept)]) => Ok(kept.clone()),
            _ => Err(said.other()),
        }
    }
}

fn parse<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(|e| other_answer().with_source(e))
}

fn other_answer() -> StoreError {
    StoreError::unknown("Redis answered another operation")
}

/// Warns once about the data that this server can lose.
fn warn(server: &Server, replicas: u32) {
    if !server.persists {
        tracing::warn!("Redis has no append-only file: a restart forgets records, and their keys run again");
    }
    if server.replicas > 0 || server.is_cluster {
        let waits = if replicas > 0 {
            "makes that less likely, and does not rule it out"
        } else {
            "is not asked for"
        };
        tracing::warn!(
            "Redis replicates asynchronously: a failover forgets what the promoted replica had not received, and those keys \
             run again; waiting for replicas {waits}. Redis in front of Postgres (Tiered) loses nothing"
        );
    }
}
