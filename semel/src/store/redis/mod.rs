//! The store on Redis: a single server, sentinel, or a cluster.
//!
//! - `options`, `address`: the URL and the limits of a store.
//! - `nodes`: the servers, each with a queue and a clock of its own, and the choice of the one that
//!   holds a key.
//! - `batching/`: batches as pipelines of scripts over one connection; `lua/` has the scripts.
//! - `stored`, `name`: a record and its key as Redis holds them.
//! - `scan`: listing and counting.
//! - `hot`: Redis as the hot store of a tier.
//! - `size`: the memory in use and the number of keys.
//! - `errors`: the meaning of a reply that is an error.

mod options;
mod address;
mod nodes;
mod batching;
mod stored;
mod name;
mod scan;
mod size;
mod hot;
mod errors;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Value, from_redis_value};

pub use options::RedisOptions;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, DraftState, Replace, Write};
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::cached_stats::Counted;
use crate::store::shared::group_commit::Lane;
use crate::store::shared::server_clock::ClockOffset;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::{Fence, Transactions};
use crate::words::record::{Note, Record};
use crate::words::terms::Terms;
use crate::words::text;
use crate::words::time::Timestamp;
use batching::scripts;
use batching::session::Server;
use name::Name;
use nodes::{Answer, Command, Nodes};

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

/// The number of bytes of a record that are shown at once: the average share of an answer in a
/// batch. A larger record is requested separately, with its size, so that no batch reads too much.
const LARGE: usize = 32 << 10;

/// The time for which Redis keeps an expired record, so that it can still be listed.
const GRACE: Duration = Duration::from_secs(60);

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

    /// Sends one command, and returns the script's reply: its word, and the values behind it.
    async fn run(
        &self,
        lane: Lane,
        name: &Name,
        command: impl Fn(ClockOffset) -> Cmd,
    ) -> Result<Said, StoreError> {
        let answered = self.shared.nodes.ask(lane, name, Command::new(command)).await?;
        let Answer::Own(Value::Array(parts)) = answered.said else { return Err(other_answer()) };
        let mut parts = parts.into_iter();
        let now = Timestamp::from_micros(parse(parts.next().unwrap_or(Value::Nil))?);
        answered.node.clock.hear(now);
        let word = parse(parts.next().unwrap_or(Value::Nil))?;
        Ok(Said { now, offset: answered.offset, word, rest: parts.collect() })
    }

    /// The record of a key that is large. All concurrent callers share one copy of its outcome.
    async fn read_large(
        &self,
        name: &Name,
        key: &Key,
        bytes: usize,
    ) -> Result<(Timestamp, Option<Record>), StoreError> {
        let make = |_| {
            let mut command = scripts::READ.on(name.as_bytes());
            command.arg(self.again()).arg("");
            command
        };
        let answered =
            self.shared.nodes.ask(Lane::Claim, name, Command { make, answer_bytes: bytes }).await?;
        let Answer::Shared(large) = answered.said else { return Err(other_answer()) };
        let read = large.record.get_or_init(|| match &large.value {
            Value::Array(parts) => match &parts[..] {
                [now, Value::BulkString(word), stored] if word == b"found" => {
                    let Value::BulkString(stored) = stored else { return Err(other_answer()) };
                    Ok((
                        Timestamp::from_micros(parse(now.clone())?),
                        Some(stored::record(stored, key.clone())?),
                    ))
                }
                [now, Value::BulkString(word)] if word == b"missing" => {
                    Ok((Timestamp::from_micros(parse(now.clone())?), None))
                }
                _ => Err(other_answer()),
            },
            _ => Err(other_answer()),
        });
        let (now, record) = read.clone()?;
        answered.node.clock.hear(now);
        // Each caller that shares the record converts a copy of its own.
        Ok((answered.offset.to_store(now), record.map(|record| answered.offset.record_to_store(record))))
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

    async fn open_one(&self, ask: &Ask) -> Result<(Timestamp, Opened), StoreError> {
        let name = self.name(&ask.key);
        let command = |offset: ClockOffset| {
            let mut command = scripts::OPEN.on(name.as_bytes());
            command
                .arg(offset.to_server(ask.not_after).as_micros())
                .arg(micros(ask.terms.lease()))
                .arg(micros(ask.terms.retention()))
                .arg(micros(GRACE))
                .arg(ask.token.as_bytes())
                .arg(stored::asked(&ask.intent, &ask.owner))
                .arg(self.again())
                .arg(&[stored::policy(ask.terms.after_crash())])
                .arg(LARGE);
            command
        };
        let said = self.run(Lane::Claim, &name, command).await?;
        let opened = match &*said.word {
            "created" => {
                let (fence, lease_until) = said.grant()?;
                Opened::Created { fence, lease_until }
            }
            "found" => Opened::Found(Box::new(said.record(ask.key.clone())?)),
            "large" => {
                let (now, record) = self.read_large(&name, &ask.key, said.bytes()?).await?;
                return Ok((now, record.map_or(Opened::Unseen, |record| Opened::Found(Box::new(record)))));
            }
            "late" => Opened::Late,
            _ => return Err(said.other()),
        };
        Ok((said.now(), opened))
    }

    async fn replace_one(&self, item: &Replace) -> Result<(Timestamp, Replaced), StoreError> {
        let name = self.name(&item.key);
        let draft = &item.draft;
        let (state, outcome) = match &draft.state {
            DraftState::Running => (stored::RUNNING, Vec::new()),
            DraftState::Done(outcome) => (stored::DONE, stored::outcome(outcome)),
            DraftState::Released => (stored::RELEASED, Vec::new()),
        };
        let command = |offset: ClockOffset| {
            let not_after = item.not_after.map(|not_after| offset.to_server(not_after).as_micros());
            let mut command = scripts::REPLACE.on(name.as_bytes());
            command
                .arg(item.expected_token.as_bytes())
                .arg(item.expected_version)
                .arg(text_or_nothing(not_after))
                .arg(micros(GRACE))
                .arg(&[state])
                .arg(draft.token.as_bytes())
                .arg(draft.attempt)
                .arg(stored::asked(&draft.intent, &draft.owner))
                .arg(&outcome)
                .arg(micros(draft.lease))
                .arg(micros(draft.retention))
                .arg(if draft.fresh { "fresh" } else { "" })
                .arg(draft.note.as_deref().map(shortened).as_deref().unwrap_or_default())
                .arg(&[stored::policy(draft.after_crash)]);
            command
        };
        let said = self.run(Lane::Claim, &name, command).await?;
        let replaced = match &*said.word {
            "applied" => {
                let (fence, lease_until) = said.grant()?;
                Replaced::Applied { fence, lease_until }
            }
            "changed" => Replaced::Changed,
            "late" => Replaced::Late,
            _ => return Err(said.other()),
        };
        Ok((said.now(), replaced))
    }

    async fn write_one(&self, item: &Write) -> Result<(Timestamp, Written), StoreError> {
        let name = self.name(&item.key);
        let (action, with) = match &item.action {
            Action::Renew { lease, .. } => ("renew", micros(*lease).to_string().into_bytes()),
            Action::Complete { outcome, .. } => ("complete", stored::outcome(outcome)),
            Action::Release { .. } | Action::Void => {
                ("release", micros(Terms::RELEASED_RETENTION).to_string().into_bytes())
            }
            Action::Abandon { note, .. } => ("abandon", shortened(note).as_bytes().to_vec()),
            Action::Hold { note, .. } => ("hold", shortened(note).as_bytes().to_vec()),
        };
        let command = |_| {
            let mut command = scripts::WRITE.on(name.as_bytes());
            command
                .arg(item.token.as_bytes())
                .arg(text_or_nothing(item.action.fence().map(Fence::get)))
                .arg(micros(GRACE))
                .arg(action)
                .arg(&with)
                .arg(self.again())
                .arg(LARGE);
            command
        };
        let said = self.run(Lane::Owner, &name, command).await?;
        let written = match &*said.word {
            "applied" => Written::Applied,
            "missing" => Written::Unapplied(None),
            "found" => Written::Unapplied(Some(Box::new(said.record(item.key.clone())?))),
            "large" => {
                let (_, record) = self.read_large(&name, &item.key, said.bytes()?).await?;
                Written::Unapplied(record.map(Box::new))
            }
            _ => return Err(said.other()),
        };
        Ok((said.now(), written))
    }

    async fn read_one(
        &self,
        name: Name,
        key: Key,
        again: &str,
    ) -> Result<(Timestamp, Option<Record>), StoreError> {
        let command = |_| {
            let mut command = scripts::READ.on(name.as_bytes());
            command.arg(again).arg(LARGE);
            command
        };
        let said = self.run(Lane::Claim, &name, command).await?;
        match &*said.word {
            "large" => self.read_large(&name, &key, said.bytes()?).await,
            "found" => Ok((said.now(), Some(said.record(key)?))),
            "missing" => Ok((said.now(), None)),
            _ => Err(said.other()),
        }
    }

    /// Removes a record that is unchanged since it was seen, and returns `true` if it was removed.
    async fn remove(&self, name: &Name, seen: &Record) -> Result<bool, StoreError> {
        let command = |_| {
            let mut command = scripts::REMOVE.on(name.as_bytes());
            command.arg(seen.token.as_bytes()).arg(seen.version);
            command
        };
        Ok(self.run(Lane::Claim, name, command).await?.word == "applied")
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

/// The reply of a script. Its times are by the clock of the server that has the key; answers use
/// the clock of the store, because a claim's `not_after` is a time of that clock.
struct Said {
    now: Timestamp,
    offset: ClockOffset,
    word: String,
    rest: Vec<Value>,
}

impl Said {
    /// The error for a word that is not among the expected ones.
    fn other(&self) -> StoreError {
        match &*self.word {
            "unreadable" => StoreError::corrupt("the stored record has an unknown form"),
            _ => other_answer(),
        }
    }

    /// The time of the reply, by the clock of the store.
    fn now(&self) -> Timestamp {
        self.offset.to_store(self.now)
    }

    fn grant(&self) -> Result<(Fence, Timestamp), StoreError> {
        match &*self.rest {
            [Value::Int(fence), Value::Int(until)] => {
                let until = self.offset.to_store(Timestamp::from_micros(until.unsigned_abs()));
                Ok((Fence::new(fence.unsigned_abs()), until))
            }
            _ => Err(other_answer()),
        }
    }

    /// The size of a record that was too large to be shown.
    fn bytes(&self) -> Result<usize, StoreError> {
        match &*self.rest {
            [Value::Int(bytes)] => Ok(usize::try_from(*bytes).unwrap_or(usize::MAX)),
            _ => Err(other_answer()),
        }
    }

    fn record(&self, key: Key) -> Result<Record, StoreError> {
        match &*self.rest {
            [Value::BulkString(stored)] => Ok(self.offset.record_to_store(stored::record(stored, key)?)),
            _ => Err(other_answer()),
        }
    }
}

fn parse<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(|e| other_answer().with_source(e))
}

fn other_answer() -> StoreError {
    StoreError::unknown("Redis answered another operation")
}

/// A note in the form in which it is stored.
fn shortened(note: &str) -> Arc<str> {
    text::shorten(note, Note::MAX_BYTES)
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn text_or_nothing(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
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
