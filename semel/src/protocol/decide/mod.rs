//! The rule: the answer to a claim, and the meaning of a write that was not applied.
//!
//! The rule exists only here. Every function is pure: it computes an answer from a record, a
//! request and the time by the store's clock. Backends create, read and write records; they do not
//! decide.

use std::time::Duration;

use crate::protocol::answer::{Ack, Claim, Done, Held, Mismatch, OperatorAck, Remembered};
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, Draft, DraftState, Write};
use crate::words::lease::{Fence, Token};
use crate::words::outcome::Outcome;
use crate::words::record::{Owner, Phase, Record, RecordState};
use crate::words::time::Timestamp;

/// The decision about a claim that found a record.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The record stays unchanged, and the claim gets this answer.
    Answer(Claim),
    /// The claim may replace the record. It is granted if the record is still unchanged at the
    /// write.
    Replace(Draft),
}

/// The decision about a claim that found this record, at this moment of the store's clock.
///
/// A late claim is refused first. Then retention is checked: an expired record counts as absent.
/// Then a different intent is refused in every state, except that a copy of a released or voided
/// claim is late.
pub fn claim(found: &Record, ask: &Ask, now: Timestamp) -> Decision {
    use Decision::{Answer, Replace};

    if now > ask.not_after {
        return Answer(Claim::Late);
    }
    if found.is_expired(now) {
        return Replace(attempt(ask, 1));
    }
    let same_token = found.token == ask.token;
    if found.state == RecordState::Released && same_token {
        return Answer(Claim::Late);
    }
    if found.intent != ask.intent {
        return Answer(Claim::Mismatch(mismatch(found, now)));
    }
    match &found.state {
        RecordState::Done { outcome, finished_at } => Answer(Claim::Done(done(found, outcome, *finished_at))),
        RecordState::Released => Replace(attempt(ask, found.attempt + 1)),
        RecordState::Running if same_token => Answer(Claim::Granted(found.lease())),
        RecordState::Running if found.phase(now) == Phase::Running => Answer(running(found, now)),
        RecordState::Running if ask.takeover.allows(found.fence, found.after_crash) => {
            Replace(attempt(ask, found.attempt + 1))
        }
        RecordState::Running => Answer(Claim::Held(held(found))),
    }
}

/// The answer to a request that is not admitted: the answer that its claim would get from this
/// record. `None` if the claim would be granted.
pub fn look(found: Option<&Record>, ask: &Ask, now: Timestamp) -> Option<Claim> {
    match claim(found?, ask, now) {
        Decision::Answer(answer) => Some(answer),
        Decision::Replace(_) => None,
    }
}

/// The answer to a claim by a hot store, which keeps only outcomes. `None` if the intents differ:
/// the hot store cannot describe the mismatch, so the durable store is asked.
pub fn remembered(found: &Remembered, ask: &Ask) -> Option<Claim> {
    (found.intent == ask.intent).then(|| Claim::Done(found.done.clone()))
}

/// The answer to a claim that may replace the record but could not: another writer has locked the
/// record in a transaction, or won a race.
pub fn contended(found: &Record, now: Timestamp) -> Claim {
    running(found, now)
}

/// The meaning of an owner's write that was not applied, derived from the record that the write
/// found.
///
/// `None` if the record is still the owner's: another open transaction had locked it, and the write
/// should be sent again.
///
/// The function `complete_record` of the Postgres schema repeats this rule for completions, because
/// it also answers callers that are not written in Rust. It is the one exception, and is tested
/// against this function, and by the conformance suite.
pub fn unapplied(found: Option<&Record>, write: &Write) -> Option<Ack> {
    let Some(found) = found else {
        return Some(Ack::Missing);
    };
    let mine = found.token == write.token && write.action.fence().is_none_or(|fence| fence == found.fence);
    match (&found.state, &write.action) {
        (RecordState::Running, Action::Renew { .. }) if mine => Some(Ack::Repeated),
        (RecordState::Running, _) if mine => None,
        (RecordState::Done { outcome: recorded, .. }, Action::Complete { outcome, .. })
            if mine && recorded == outcome =>
        {
            Some(Ack::Repeated)
        }
        (RecordState::Done { .. }, _) => Some(Ack::Finished),
        (RecordState::Released, Action::Release { .. } | Action::Void) if mine => Some(Ack::Repeated),
        (RecordState::Released | RecordState::Running, _) => Some(Ack::Superseded),
    }
}

/// The change that an operator requests for a record that was seen with a certain fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorChange {
    /// Records this outcome, because the effect happened.
    Resolve(Outcome),
    /// Releases the key, because the effect did not happen.
    Reset,
    /// Makes the key count as new, whatever happened.
    Forget,
}

/// The decision about an operator's change: the draft that replaces the record, or a refusal.
///
/// A live lease is never touched. A key is resolved or reset only while it is held or lost; it is
/// forgotten in any state without a live lease. The token is a new one, so that the lost owner can
/// no longer write.
///
/// # Errors
/// The refusal, with the record as it is now.
pub fn operator_change(
    found: Option<&Record>,
    seen: Fence,
    change: &OperatorChange,
    reason: &str,
    token: Token,
    now: Timestamp,
) -> Result<Draft, OperatorAck> {
    let Some(found) = found.filter(|record| !record.is_expired(now)) else {
        return Err(OperatorAck::Missing);
    };
    if found.fence != seen {
        return Err(OperatorAck::Moved(Box::new(found.clone())));
    }
    match found.phase(now) {
        Phase::Running => return Err(OperatorAck::Running(Box::new(found.clone()))),
        Phase::Done | Phase::Released if *change != OperatorChange::Forget => {
            return Err(OperatorAck::Unfit(Box::new(found.clone())));
        }
        Phase::Held | Phase::Lost | Phase::Done | Phase::Released => {}
    }
    let (word, state, retention) = match change {
        OperatorChange::Resolve(outcome) => ("resolved", DraftState::Done(outcome.clone()), found.retention),
        // Copies of the lost attempt's claim may still arrive and must find the record. So must the
        // next attempt: the lost one may still run, and only fences that continue from its fence
        // are sure to be higher.
        OperatorChange::Reset => ("reset", DraftState::Released, found.retention),
        OperatorChange::Forget => ("forgotten", DraftState::Released, Duration::ZERO),
    };
    Ok(Draft {
        intent: found.intent.clone(),
        state,
        token,
        attempt: found.attempt,
        owner: Owner::new("operator"),
        lease: Duration::ZERO,
        retention,
        after_crash: found.after_crash,
        fresh: false,
        note: Some(format!("{word}: {reason}").into()),
    })
}

/// The record of a granted attempt.
fn attempt(ask: &Ask, attempt: u32) -> Draft {
    Draft {
        intent: ask.intent.clone(),
        state: DraftState::Running,
        token: ask.token,
        attempt,
        owner: ask.owner.clone(),
        lease: ask.terms.lease(),
        retention: ask.terms.retention(),
        after_crash: ask.terms.after_crash(),
        fresh: attempt == 1,
        note: None,
    }
}

fn running(found: &Record, now: Timestamp) -> Claim {
    Claim::Running { since: found.created_at, left: found.lease_left(now) }
}

fn done(found: &Record, outcome: &Outcome, finished_at: Timestamp) -> Done {
    Done { outcome: outcome.clone(), fence: found.fence, expires_at: finished_at.after(found.retention) }
}

fn mismatch(found: &Record, now: Timestamp) -> Mismatch {
    let operation = found.intent.operation().into();
    Mismatch { since: found.created_at, operation, phase: found.phase(now) }
}

fn held(found: &Record) -> Held {
    Held { since: found.created_at, fence: found.fence, attempt: found.attempt }
}

#[cfg(test)]
mod tests;
