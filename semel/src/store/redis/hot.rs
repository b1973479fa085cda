//! Redis as a hot store: it remembers outcomes, under names of their own.
//!
//! An entry begins with a format, the fence and a letter, which `lua/plant.lua` compares; then
//! follow the end of its retention in the durable store, the intent and the outcome.

use std::time::Duration;

use async_trait::async_trait;
use bytes::BufMut;
use redis::{Value, cmd};

use super::batching::scripts;
use super::name::Name;
use super::nodes::{Answer, Command};
use super::stored::{self, Reader};
use super::{RedisStore, other_answer};
use crate::protocol::answer::{Done, Remembered};
use crate::store::backend::Backend;
use crate::store::shared::group_commit::Lane;
use crate::store::shared::server_clock::ClockOffset;
use crate::store::tiered::Hot;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::Fence;
use crate::words::time::Timestamp;

/// The number of bytes of an entry that are requested at first. A larger entry is then requested
/// with its size, so that no batch reads too much.
const FIRST: usize = 8 << 10;

const FORMAT: u8 = 1;
const DONE: u8 = b'A';
const FORGOTTEN: u8 = b'Z';

impl RedisStore {
    /// The name of an entry, which no record of the store itself can have.
    fn hot_name(&self, key: &Key) -> Name {
        Name::new(&format!("{}+hot", self.shared.options.prefix), key)
    }

    async fn put(
        &self,
        key: &Key,
        what: &[u8],
        kept: Duration,
        not_after: Timestamp,
    ) -> Result<(), StoreError> {
        let name = self.hot_name(key);
        let command = |offset: ClockOffset| {
            let mut command = scripts::PLANT.on(name.as_bytes());
            // The time is rounded down: an entry is never kept for longer than it is valid.
            let kept = (kept.as_millis() as u64).max(1);
            command.arg(offset.to_server(not_after).as_micros()).arg(kept).arg(what);
            command
        };
        self.run(Lane::Claim, &name, command).await.map(drop)
    }

    /// The entry of a large outcome. All concurrent callers share one copy of it.
    async fn recall_large(&self, name: &Name, bytes: usize) -> Result<Option<Remembered>, StoreError> {
        let make = |_| {
            let mut get = cmd("GET");
            get.arg(name.as_bytes());
            get
        };
        let whole = Command { make, answer_bytes: bytes };
        match self.shared.nodes.ask(Lane::Claim, name, whole).await?.said {
            Answer::Shared(large) => {
                let remembered = large.remembered.get_or_init(|| match &large.value {
                    Value::BulkString(found) => decoded(found),
                    _ => None,
                });
                Ok(remembered.clone())
            }
            Answer::Own(_) => Err(other_answer()),
        }
    }
}

#[async_trait]
impl Hot for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError> {
        let name = self.hot_name(key);
        let first = |_| {
            let mut first = cmd("GETRANGE");
            first.arg(name.as_bytes()).arg(0).arg(FIRST - 1);
            first
        };
        let answered = self.shared.nodes.ask(Lane::Claim, &name, Command::new(first)).await?;
        let first: Vec<u8> = answered.said.parse()?;
        if first.len() < FIRST {
            return Ok(decoded(&first));
        }
        match size(&first) {
            Some(bytes) => self.recall_large(&name, bytes).await,
            None => Ok(None),
        }
    }

    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError> {
        let not_after = self.clock().await?.after(within);
        self.put(key, &encoded(remembered), kept, not_after).await
    }

    /// A mark of a forgotten key does no harm however late it arrives: it hides only what is older
    /// than the forgetting.
    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError> {
        self.put(key, &head(fence, FORGOTTEN), kept, Timestamp::from_micros(u64::MAX)).await
    }
}

fn head(fence: Fence, letter: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.put_u8(FORMAT);
    bytes.put_u64(fence.get());
    bytes.put_u8(letter);
    bytes
}

fn encoded(remembered: &Remembered) -> Vec<u8> {
    let Remembered { intent, done } = remembered;
    let mut bytes = head(done.fence, DONE);
    bytes.put_u64(done.expires_at.as_micros());
    bytes.put_slice(&stored::intent_bytes(intent));
    bytes.put_slice(&stored::outcome(&done.outcome));
    bytes
}

/// An entry that remembers an outcome; its last part is the outcome.
struct Entry<'a> {
    fence: Fence,
    expires_at: Timestamp,
    intent: Intent,
    outcome: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry that begins with these bytes. An entry in an unknown form, a damaged one, and the
    /// mark of a forgotten key count as absent: the durable store has the answer.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let format = rest.u8().ok()?;
        let fence = Fence::new(rest.u64().ok()?);
        if format != FORMAT || rest.u8().ok()? != DONE {
            return None;
        }
        let expires_at = rest.moment().ok()?;
        let intent = stored::parse_intent(&mut rest).ok()?;
        Some(Self { fence, expires_at, intent, outcome: rest.0 })
    }
}

fn decoded(bytes: &[u8]) -> Option<Remembered> {
    let Entry { fence, expires_at, intent, outcome } = Entry::of(bytes)?;
    let outcome = stored::parse_outcome(outcome).ok()?;
    Some(Remembered { intent, done: Done { outcome, fence, expires_at } })
}

/// The size of the whole entry that begins with these bytes.
fn size(first: &[u8]) -> Option<usize> {
    let outcome = Entry::of(first)?.outcome;
    Some(first.len() - outcome.len() + stored::outcome_bytes(outcome).ok()?)
}
