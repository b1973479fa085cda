//! The rule: what a claim is answered, and what a write that was not applied means.
//!
//! This is the only place in the project that holds it. Every function here is pure: a record, a question and the
//! store's clock in, an answer out. Backends create, read and write; they never decide.

use std::time::Duration;

use crate::protocol::answer::{Ack, Change, Claim, Done, Held, Mismatch, Remembered};
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, Draft, DraftState, Write};
use crate::words::lease::{Fence, Token};
use crate::words::outcome::Outcome;
use crate::words::record::{Owner, Phase, Record, State};
use crate::words::time::Timestamp;

/// What a claim does about the record it found.
#[derive(Debug, Clone)]
pub enum Decision {
    /// Nothing: this is the answer.
    Answer(Claim),
    /// It may take the record's place; the answer depends on whether the record is still as it was.
    Replace(Draft),
}

/// What a claim is answered that found this record, at this moment of the store's clock.
///
/// Retention comes first: an expired record counts as absent. Then another intent is refused, whatever the state,
/// except for a late copy of a claim that was taken back.
pub fn claim(found: &Record, ask: &Ask, now: Timestamp) -> Decision {
    use Decision::{Answer, Replace};

    if now > ask.not_after {
        return Answer(Claim::Late);
    }
    if found.is_expired(now) {
        return Replace(attempt(ask, 1));
    }
    let same_token = found.token == ask.token;
    if found.state == State::Released && same_token {
        return Answer(Claim::Late);
    }
    if found.intent != ask.intent {
        return Answer(Claim::Mismatch(mismatch(found, now)));
    }
    match &found.state {
        State::Done { outcome, finished_at } => Answer(Claim::Done(done(found, outcome, *finished_at))),
        State::Released => Replace(attempt(ask, found.attempt + 1)),
        State::Running if same_token => Answer(Claim::Granted(found.lease())),
        State::Running if found.phase(now) == Phase::Running => Answer(running(found, now)),
        State::Running if ask.takeover.allows(found.fence, found.after_crash) => {
            Replace(attempt(ask, found.attempt + 1))
        }
        State::Running => Answer(Claim::Held(held(found))),
    }
}

/// What a request hears that may not run: what its claim would be answered with this record. `None` if it would run.
pub fn look(found: Option<&Record>, ask: &Ask, now: Timestamp) -> Option<Claim> {
    match claim(found?, ask, now) {
        Decision::Answer(answer) => Some(answer),
        Decision::Replace(_) => None,
    }
}

/// What a claim is answered by a store that only remembers what is done. `None` if it was asked something else: what is
/// remembered is too little to say how, so the store that decides is asked.
pub fn remembered(found: &Remembered, ask: &Ask) -> Option<Claim> {
    (found.intent == ask.intent).then(|| Claim::Done(found.done.clone()))
}

/// What a claim is answered if it may take the record's place but never gets to: somebody is at work on it right
/// now, in a transaction or in a race.
pub fn contended(found: &Record, now: Timestamp) -> Claim {
    running(found, now)
}

/// What it means that an owner's write was not applied, from the record that was there instead.
///
/// `None` if the record is still the owner's: it was locked by somebody's open transaction, and the write should
/// be sent again.
pub fn unapplied(found: Option<&Record>, write: &Write) -> Option<Ack> {
    let Some(found) = found else {
        return Some(Ack::Missing);
    };
    let mine = found.token == write.token && write.action.fence().is_none_or(|fence| fence == found.fence);
    match (&found.state, &write.action) {
        (State::Running, Action::Renew { .. }) if mine => Some(Ack::Repeated),
        (State::Running, _) if mine => None,
        (State::Done { outcome: recorded, .. }, Action::Complete { outcome, .. })
            if mine && recorded == outcome =>
        {
            Some(Ack::Repeated)
        }
        (State::Done { .. }, _) => Some(Ack::Finished),
        (State::Released, Action::Release { .. } | Action::Void) if mine => Some(Ack::Repeated),
        (State::Released | State::Running, _) => Some(Ack::Superseded),
    }
}

/// What an operator wants of a key, having seen its record with a certain fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// It happened, with this outcome: record it.
    Resolve(Outcome),
    /// It did not happen: let the key be claimed again.
    Reset,
    /// Whatever happened: let the key be as if it had never been used.
    Forget,
}

/// What becomes of an operator's change: the draft that takes the record's place, or why not.
///
/// A live lease is never touched. A key is resolved or reset only while it is held or lost; it is forgotten in any
/// other state, too. The token is a new one, so that the lost owner cannot write any more.
///
/// # Errors
/// The refusal, with the record as it is now.
pub fn settle(
    found: Option<&Record>,
    seen: Fence,
    settle: &Settle,
    reason: &str,
    token: Token,
    now: Timestamp,
) -> Result<Draft, Change> {
    let Some(found) = found.filter(|record| !record.is_expired(now)) else {
        return Err(Change::Missing);
    };
    if found.fence != seen {
        return Err(Change::Moved(Box::new(found.clone())));
    }
    match found.phase(now) {
        Phase::Running => return Err(Change::Running(Box::new(found.clone()))),
        Phase::Done | Phase::Released if *settle != Settle::Forget => {
            return Err(Change::Unfit(Box::new(found.clone())));
        }
        Phase::Held | Phase::Lost | Phase::Done | Phase::Released => {}
    }
    let (word, state, retention) = match settle {
        Settle::Resolve(outcome) => ("resolved", DraftState::Done(outcome.clone()), found.retention),
        // Copies of the lost attempt's claim may still arrive, and must find the record. So must the next attempt: the lost one
        // may still run, and only fences that go on from its own are sure to be higher.
        Settle::Reset => ("reset", DraftState::Released, found.retention),
        Settle::Forget => ("forgotten", DraftState::Released, Duration::ZERO),
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
