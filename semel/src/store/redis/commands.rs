//! The command for each item of a primitive, and the meaning of its reply.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::batching::scripts;
use super::name::Name;
use super::nodes::{Answer, Command};
use super::{RedisStore, other_answer, parse, stored};
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, DraftState, Replace, Write};
use crate::store::backend::{Opened, Replaced, Written};
use crate::store::shared::group_commit::Lane;
use crate::store::shared::server_clock::ClockOffset;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;
use crate::words::record::{Note, Record};
use crate::words::terms::Terms;
use crate::words::text;
use crate::words::time::Timestamp;

/// The number of bytes of a record that are shown at once: the average share of an answer in a
/// batch. A larger record is requested separately, with its size, so that no batch reads too much.
const LARGE: usize = 32 << 10;

/// The time for which Redis keeps an expired record, so that it can still be listed.
pub(super) const GRACE: Duration = Duration::from_secs(60);

impl RedisStore {
    /// Sends one command, and returns the script's reply: its word, and the values behind it.
    pub(super) async fn run(
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
    pub(super) async fn read_large(
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

    pub(super) async fn open_one(&self, ask: &Ask) -> Result<(Timestamp, Opened), StoreError> {
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

    pub(super) async fn replace_one(&self, item: &Replace) -> Result<(Timestamp, Replaced), StoreError> {
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

    pub(super) async fn write_one(&self, item: &Write) -> Result<(Timestamp, Written), StoreError> {
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

    pub(super) async fn read_one(
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
    pub(super) async fn remove(&self, name: &Name, seen: &Record) -> Result<bool, StoreError> {
        let command = |_| {
            let mut command = scripts::REMOVE.on(name.as_bytes());
            command.arg(seen.token.as_bytes()).arg(seen.version);
            command
        };
        Ok(self.run(Lane::Claim, name, command).await?.word == "applied")
    }
}

/// The reply of a script. Its times are by the clock of the server that has the key; answers use
/// the clock of the store, because a claim's `not_after` is a time of that clock.
pub(super) struct Said {
    pub(super) now: Timestamp,
    pub(super) offset: ClockOffset,
    pub(super) word: String,
    pub(super) rest: Vec<Value>,
}

impl Said {
    /// The error for a word that is not among the expected ones.
    pub(super) fn other(&self) -> StoreError {
        match &*self.word {
            "unreadable" => StoreError::corrupt("the stored record has an unknown form"),
            _ => other_answer(),
        }
    }

    /// The time of the reply, by the clock of the store.
    pub(super) fn now(&self) -> Timestamp {
        self.offset.to_store(self.now)
    }

    pub(super) fn grant(&self) -> Result<(Fence, Timestamp), StoreError> {
        match &*self.rest {
            [Value::Int(fence), Value::Int(until)] => {
                let until = self.offset.to_store(Timestamp::from_micros(until.unsigned_abs()));
                Ok((Fence::new(fence.unsigned_abs()), until))
            }
            _ => Err(other_answer()),
        }
    }

    /// The size of a record that was too large to be shown.
    pub(super) fn bytes(&self) -> Result<usize, StoreError> {
        match &*self.rest {
            [Value::Int(bytes)] => Ok(usize::try_from(*bytes).unwrap_or(usize::MAX)),
            _ => Err(other_answer()),
        }
    }

    pub(super) fn record(&self, key: Key) -> Result<Record, StoreError> {
        match &*self.rest {
            [Value::BulkString(stored)] => Ok(self.offset.record_to_store(stored::record(stored, key)?)),
            _ => Err(other_answer()),
        }
    }
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
