//! The slot of one record, and the three primitives on it.
//!
//! These functions specify the effect that the statements of every backend must have on a row. The
//! memory store runs them, and the model checker searches over them.

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, Draft, DraftState, Replace, Write};
use crate::store::backend::{Opened, Replaced, Written};
use crate::words::key::Key;
use crate::words::lease::Fence;
use crate::words::record::{Note, Record, RecordState};
use crate::words::terms::{AfterCrash, Terms};
use crate::words::time::Timestamp;

/// Creates the record of this claim if there is none; otherwise returns the existing one.
pub fn open(slot: &mut Option<Box<Record>>, ask: &Ask, now: Timestamp) -> Opened {
    if now > ask.not_after {
        return Opened::Late;
    }
    if let Some(found) = slot {
        return Opened::Found(found.clone());
    }
    let record = Record {
        key: ask.key.clone(),
        intent: ask.intent.clone(),
        state: RecordState::Running,
        version: 1,
        token: ask.token,
        fence: Fence::next(None, now),
        attempt: 1,
        owner: ask.owner.clone(),
        lease_until: now.after(ask.terms.lease()),
        heartbeat_at: now,
        created_at: now,
        updated_at: now,
        retention: ask.terms.retention(),
        after_crash: ask.terms.after_crash(),
        note: None,
    };
    let created = Opened::Created { fence: record.fence, lease_until: record.lease_until };
    *slot = Some(Box::new(record));
    created
}

/// Replaces the whole record if the existing one still has the expected token and version.
pub fn replace(slot: &mut Option<Box<Record>>, item: &Replace, now: Timestamp) -> Replaced {
    let Some(found) = slot
        .as_ref()
        .filter(|found| found.token == item.expected_token && found.version == item.expected_version)
    else {
        return Replaced::Changed;
    };
    if item.not_after.is_some_and(|not_after| now > not_after) {
        return Replaced::Late;
    }
    let record = redraft(found, &item.key, &item.draft, now);
    let applied = Replaced::Applied { fence: record.fence, lease_until: record.lease_until };
    *slot = Some(Box::new(record));
    applied
}

fn redraft(found: &Record, key: &Key, draft: &Draft, now: Timestamp) -> Record {
    let kept_note = if draft.fresh { None } else { found.note.clone() };
    Record {
        key: key.clone(),
        intent: draft.intent.clone(),
        state: match &draft.state {
            DraftState::Running => RecordState::Running,
            DraftState::Done(outcome) => RecordState::Done { outcome: outcome.clone(), finished_at: now },
            DraftState::Released => RecordState::Released,
        },
        version: found.version + 1,
        token: draft.token,
        fence: Fence::next(Some(found.fence), now),
        attempt: draft.attempt,
        owner: draft.owner.clone(),
        lease_until: now.after(draft.lease),
        heartbeat_at: now,
        created_at: if draft.fresh { now } else { found.created_at },
        updated_at: now,
        retention: draft.retention,
        after_crash: draft.after_crash,
        note: draft.note.as_ref().map(|text| Note::new(now, text)).or(kept_note),
    }
}

/// Writes as the owner where token and fence match a running record; otherwise returns the existing
/// record.
pub fn write(slot: &mut Option<Box<Record>>, item: &Write, now: Timestamp) -> Written {
    let Some(found) = slot else {
        return Written::Unapplied(None);
    };
    let owned = found.is_owned_by(item.token, item.action.fence().unwrap_or(found.fence));
    if !owned {
        return Written::Unapplied(Some(found.clone()));
    }
    match &item.action {
        Action::Renew { lease, .. } => {
            found.lease_until = now.after(*lease);
            found.heartbeat_at = now;
        }
        Action::Complete { outcome, .. } => {
            found.state = RecordState::Done { outcome: outcome.clone(), finished_at: now };
        }
        Action::Release { .. } | Action::Void => {
            found.state = RecordState::Released;
            found.retention = found.retention.min(Terms::RELEASED_RETENTION);
        }
        Action::Abandon { note, .. } => {
            found.lease_until = now;
            found.note = Some(Note::new(now, note));
        }
        Action::Hold { note, .. } => {
            found.after_crash = AfterCrash::Hold;
            found.lease_until = now;
            found.note = Some(Note::new(now, note));
        }
    }
    found.version += 1;
    found.updated_at = now;
    Written::Applied
}
