//! The verbs of a store, written once over any backend.
//!
//! - `claiming`: a claim as a state machine.
//! - `tests`: the verbs over answers that the memory store never gives.

mod claiming;

use std::time::Duration;

use async_trait::async_trait;

pub use claiming::{Claiming, Step};

use crate::protocol::answer::{Ack, Claim, OperatorAck, Void};
use crate::protocol::ask::Ask;
use crate::protocol::decide::{self, OperatorChange};
use crate::protocol::draft::{Action, Replace, Write};
use crate::store::backend::{Answers, Backend, Replaced, Written};
use crate::store::inspect::{Inspect, ListQuery, Page, Stats};
use crate::store::{Found, MAX_SECRET_BYTES, Prune, Store};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::record::Record;
use crate::words::terms::Terms;
use crate::words::time::Timestamp;

/// The number of times that a claim or an operator's change looks again when the record changes in
/// between. Each such change means that another writer has made progress; so many in a row are not
/// expected.
const TRIES: u32 = 8;

/// The meaning of a write's result: an answer, or an error if the record is locked and the write
/// should be sent again.
pub fn acknowledge(write: &Write, written: &Written) -> Result<Ack, StoreError> {
    match written {
        Written::Applied => Ok(Ack::Applied),
        Written::Unapplied(found) => decide::unapplied(found.as_deref(), write)
            .ok_or_else(|| StoreError::unavailable("the record is locked by an open transaction")),
    }
}

/// The meaning of a void's result: it is final only if the store saw it after the claim's
/// `not_after`.
pub fn voided(not_after: Timestamp, now: Timestamp) -> Void {
    if now > not_after { Void::Final } else { Void::Early(not_after.since(now) + Duration::from_millis(1)) }
}

#[async_trait]
impl<B: Backend> Store for B {
    fn name(&self) -> &'static str {
        Backend::name(self)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.clock().await
    }

    fn completes_in_transactions(&self) -> bool {
        self.transactions().is_some()
    }

    fn needs_pruning(&self) -> bool {
        Backend::needs_pruning(self)
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError> {
        refuse_if_too_far_ahead(ask, self.known_clock())?;
        let mut claiming = Claiming::new(ask, TRIES);
        let mut step = Step::Open;
        loop {
            step = match step {
                Step::Open => {
                    let (now, opened) = one(self.open(std::slice::from_ref(ask)).await?)?;
                    claiming.opened(opened, now)
                }
                Step::Replace(item) => {
                    let (_, replaced) = one(self.replace(std::slice::from_ref(&*item)).await?)?;
                    claiming.replaced(replaced)
                }
                Step::Answer(Claim::Granted(lease)) => {
                    return Ok(Claim::Granted(lease.with_transactions(self.transactions())));
                }
                Step::Answer(claim) => return Ok(claim),
                Step::Unseen => {
                    return Err(StoreError::unavailable(format!(
                        "{:?} was not visible in {TRIES} tries",
                        ask.key
                    )));
                }
            }
        }
    }

    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError> {
        send(self, Write::by(lease, |fence| Action::Renew { fence, lease: length })).await
    }

    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError> {
        send(self, Write::by(lease, |fence| Action::Complete { fence, outcome: outcome.clone() })).await
    }

    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError> {
        send(self, Write::by(lease, |fence| Action::Release { fence })).await
    }

    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        let note = format!("abandoned: {reason}").into();
        send(self, Write::by(lease, |fence| Action::Abandon { fence, note })).await
    }

    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        let note = format!("held: {reason}").into();
        send(self, Write::by(lease, |fence| Action::Hold { fence, note })).await
    }

    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError> {
        let write = Write { key: key.clone(), token, action: Action::Void };
        let (now, written) = one(self.write(std::slice::from_ref(&write)).await?)?;
        // The identity of the record's owner does not matter here; it matters only whether the
        // record can still be this token's, and a locked one can.
        let _whose = acknowledge(&write, &written)?;
        Ok(voided(not_after, now))
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let (now, found) = one(self.read(std::slice::from_ref(key)).await?)?;
        Ok(found.filter(|record| !record.is_expired(now)))
    }

    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        let Answers { now, items } = self.read(keys).await?;
        Ok(items.into_iter().map(|found| Ok(found?.filter(|record| !record.is_expired(now)))).collect())
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        Backend::prune(self, prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        if value.is_empty() || value.len() > MAX_SECRET_BYTES {
            return Err(StoreError::refused(format!("a secret has 1 to {MAX_SECRET_BYTES} bytes")));
        }
        Backend::keep_secret(self, expected, value).await
    }
}

#[async_trait]
impl<B: Backend> Inspect for B {
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.scan(query).await
    }

    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.scan(&ListQuery { stale: true, ..query.clone() }).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Backend::stats(self).await
    }

    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError> {
        change(self, key, seen, OperatorChange::Resolve(outcome.clone()), reason).await
    }

    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        change(self, key, seen, OperatorChange::Reset, reason).await
    }

    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        change(self, key, seen, OperatorChange::Forget, reason).await
    }
}

/// The single answer to the single item that was sent.
fn one<T>(answers: Answers<T>) -> Result<(Timestamp, T), StoreError> {
    let Answers { now, mut items } = answers;
    match (items.pop(), items.is_empty()) {
        (Some(item), true) => Ok((now, item?)),
        _ => Err(StoreError::unknown("one item was sent, and the number of answers was not one")),
    }
}

/// Refuses a claim that may arrive for longer than a released record is kept: it could be granted
/// twice under one token.
fn refuse_if_too_far_ahead(ask: &Ask, known: Option<Timestamp>) -> Result<(), StoreError> {
    let limit = Terms::RELEASED_RETENTION;
    match known {
        Some(now) if ask.not_after > now.after(limit) => Err(StoreError::refused(format!(
            "the claim's `not_after` is {:?} ahead of the store's clock, and {limit:?} is the most: take it from `Store::now`",
            ask.not_after.since(now)
        ))),
        _ => Ok(()),
    }
}

async fn send<B: Backend>(backend: &B, write: Write) -> Result<Ack, StoreError> {
    let (_, written) = one(backend.write(std::slice::from_ref(&write)).await?)?;
    acknowledge(&write, &written)
}

async fn change<B: Backend>(
    backend: &B,
    key: &Key,
    seen: Fence,
    change: OperatorChange,
    reason: &str,
) -> Result<OperatorAck, StoreError> {
    let token = Token::random();
    // The loop looks once more after the last replace, too, because a copy of it may have been
    // applied.
    for tries_left in (0..=TRIES).rev() {
        let (now, found) = one(backend.read(std::slice::from_ref(key)).await?)?;
        // An earlier copy of the replace was applied, and its answer was lost.
        if found.as_ref().is_some_and(|record| record.token == token) {
            return Ok(OperatorAck::Applied);
        }
        let draft = match decide::operator_change(found.as_ref(), seen, &change, reason, token, now) {
            Ok(draft) => draft,
            Err(refused) => return Ok(refused),
        };
        let Some(found) = found else {
            return Ok(OperatorAck::Missing);
        };
        if tries_left == 0 {
            break;
        }
        let item = Replace {
            key: key.clone(),
            expected_token: found.token,
            expected_version: found.version,
            draft,
            not_after: None,
        };
        let (_, replaced) = one(backend.replace(&[item]).await?)?;
        if matches!(replaced, Replaced::Applied { .. }) {
            return Ok(OperatorAck::Applied);
        }
    }
    Err(StoreError::unavailable(format!("{key:?} changed {TRIES} times during an operator's change")))
}

#[cfg(test)]
mod tests;
