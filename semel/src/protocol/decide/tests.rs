//! Tests of the rule: one for each cell of the table of claims, and one for each meaning of a write
//! that was not applied.

use super::*;
use crate::protocol::ask::Takeover;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::terms::{AfterCrash, Terms};

const SEC: u64 = 1_000_000;
const NOW: Timestamp = Timestamp::from_micros(1_000 * SEC);
const OLD: Token = Token::from_bytes([1; 16]);
const MINE: Token = Token::from_bytes([2; 16]);
const FENCE: Fence = Fence::new(900 * SEC);

fn intent(n: u8) -> Intent {
    Intent::of("charge", "invoice", &n).unwrap()
}

fn outcome(n: u8) -> Outcome {
    Outcome::json(&n).unwrap()
}

fn done() -> RecordState {
    RecordState::Done { outcome: outcome(1), finished_at: NOW }
}

/// A record of the token `OLD` with a live lease and its retention not over.
fn record(state: RecordState) -> Record {
    let at = |secs| Timestamp::from_micros(secs * SEC);
    Record {
        key: Key::new("r", "k").unwrap(),
        intent: intent(1),
        state,
        version: 3,
        token: OLD,
        fence: FENCE,
        attempt: 2,
        owner: Owner::new("here"),
        lease_until: at(1_010),
        heartbeat_at: at(980),
        created_at: at(900),
        updated_at: at(980),
        retention: Duration::from_secs(1_000),
        after_crash: AfterCrash::Hold,
        note: None,
    }
}

fn over(state: RecordState) -> Record {
    Record { lease_until: NOW, ..record(state) }
}

/// The same record without any retention, so that it is expired if its retention has begun.
fn expired(record: Record) -> Record {
    Record { retention: Duration::ZERO, ..record }
}

/// The same record under `retry`.
fn retried(record: Record) -> Record {
    Record { after_crash: AfterCrash::Retry, ..record }
}

fn ask() -> Ask {
    Ask {
        key: Key::new("r", "k").unwrap(),
        intent: intent(1),
        token: MINE,
        owner: Owner::new("there"),
        terms: Terms::DEFAULT,
        takeover: Takeover::Never,
        not_after: NOW,
    }
}

fn other_intent() -> Ask {
    Ask { intent: intent(2), ..ask() }
}

fn takeover() -> Ask {
    Ask { takeover: Takeover::WhenOver, ..ask() }
}

fn same_token(ask: Ask) -> Ask {
    Ask { token: OLD, ..ask }
}

#[track_caller]
fn answer(found: &Record, ask: &Ask) -> Claim {
    match claim(found, ask, NOW) {
        Decision::Answer(claim) => claim,
        Decision::Replace(draft) => panic!("replaced by {draft:?}"),
    }
}

/// The attempt number of the draft that replaces the record, after a check that the draft is the
/// claim's.
#[track_caller]
fn replaced(found: &Record, ask: &Ask) -> u32 {
    match claim(found, ask, NOW) {
        Decision::Replace(draft) => {
            assert_eq!((draft.token, &draft.intent), (ask.token, &ask.intent));
            assert_eq!(draft.state, DraftState::Running);
            assert_eq!((draft.lease, draft.retention), (ask.terms.lease(), ask.terms.retention()));
            assert_eq!(draft.fresh, draft.attempt == 1);
            draft.attempt
        }
        Decision::Answer(claim) => panic!("answered {claim:?}"),
    }
}

#[test]
fn after_not_after_every_claim_is_late() {
    let late = Ask { not_after: Timestamp::from_micros(NOW.as_micros() - 1), ..takeover() };
    for state in [RecordState::Running, done(), RecordState::Released] {
        assert!(matches!(answer(&record(state.clone()), &late), Claim::Late));
        assert!(matches!(answer(&expired(over(state)), &late), Claim::Late));
    }
}

#[test]
fn an_expired_record_counts_as_absent() {
    assert_eq!(replaced(&expired(record(done())), &other_intent()), 1);
    assert_eq!(replaced(&expired(record(RecordState::Released)), &other_intent()), 1);
    assert_eq!(replaced(&expired(retried(over(RecordState::Running))), &other_intent()), 1);
}

#[test]
fn a_live_lease_keeps_a_record_past_its_retention() {
    for live in [expired(record(RecordState::Running)), expired(retried(record(RecordState::Running)))] {
        assert!(matches!(answer(&live, &takeover()), Claim::Running { .. }));
        assert!(matches!(answer(&live, &other_intent()), Claim::Mismatch(_)));
    }
}

#[test]
fn a_held_record_never_expires() {
    let held = expired(over(RecordState::Running));
    assert_eq!((held.expires_at(), held.phase(NOW)), (None, Phase::Held));
    assert!(matches!(answer(&held, &takeover()), Claim::Held(_)));
    assert!(matches!(answer(&held, &other_intent()), Claim::Mismatch(_)));
}

#[test]
fn retention_begins_with_what_settled_the_record() {
    let retention = Duration::from_secs(1_000);
    let end = |record: Record| record.expires_at().expect("it expires");
    let RecordState::Done { finished_at, .. } = done() else { panic!("it is done") };
    assert_eq!(end(record(done())), finished_at.after(retention));
    assert_eq!(end(record(RecordState::Released)), record(RecordState::Released).updated_at.after(retention));
    let lost = retried(over(RecordState::Running));
    assert_eq!(lost.phase(NOW), Phase::Lost);
    assert_eq!(end(lost), NOW.after(retention));
}

#[test]
fn released_by_another_token_is_granted_as_the_next_attempt() {
    assert_eq!(replaced(&record(RecordState::Released), &ask()), 3);
}

#[test]
fn released_by_another_token_refuses_another_intent() {
    assert!(matches!(answer(&record(RecordState::Released), &other_intent()), Claim::Mismatch(_)));
}

#[test]
fn a_released_token_never_claims_again() {
    assert!(matches!(answer(&record(RecordState::Released), &same_token(takeover())), Claim::Late));
    assert!(matches!(answer(&record(RecordState::Released), &same_token(other_intent())), Claim::Late));
}

#[test]
fn done_is_replayed() {
    let Claim::Done(replayed) = answer(&record(done()), &ask()) else { panic!("not replayed") };
    assert_eq!(replayed.outcome, outcome(1));
    assert!(matches!(answer(&over(done()), &takeover()), Claim::Done(_)));
    assert!(matches!(answer(&record(done()), &same_token(ask())), Claim::Done(_)));
}

#[test]
fn done_refuses_another_intent() {
    assert!(matches!(answer(&record(done()), &other_intent()), Claim::Mismatch(_)));
}

#[test]
fn running_with_the_same_token_is_granted_again_with_the_same_fence() {
    for found in [record(RecordState::Running), over(RecordState::Running)] {
        let Claim::Granted(lease) = answer(&found, &same_token(takeover())) else { panic!("not granted") };
        assert_eq!((lease.token(), lease.fence(), lease.attempt()), (OLD, FENCE, 2));
    }
}

#[test]
fn running_with_the_same_token_refuses_another_intent() {
    assert!(matches!(answer(&record(RecordState::Running), &same_token(other_intent())), Claim::Mismatch(_)));
}

#[test]
fn running_under_a_live_lease_is_running() {
    let Claim::Running { since, left } = answer(&record(RecordState::Running), &takeover()) else { panic!() };
    assert_eq!((since, left), (record(RecordState::Running).created_at, Duration::from_secs(10)));
}

#[test]
fn running_refuses_another_intent_in_every_phase() {
    let other = Ask { takeover: Takeover::WhenOver, ..other_intent() };
    assert!(matches!(answer(&record(RecordState::Running), &other), Claim::Mismatch(_)));
    assert!(matches!(answer(&over(RecordState::Running), &other), Claim::Mismatch(_)));
}

#[test]
fn a_lost_attempt_is_taken_over_when_asked_to() {
    assert_eq!(replaced(&retried(over(RecordState::Running)), &takeover()), 3);
    let transactional = Record { after_crash: AfterCrash::Transactional, ..over(RecordState::Running) };
    assert_eq!(replaced(&transactional, &takeover()), 3);
}

#[test]
fn a_held_attempt_is_taken_over_by_its_fence_only() {
    for after_crash in [AfterCrash::Hold, AfterCrash::Retry, AfterCrash::Transactional] {
        let asked = Ask { terms: Terms::DEFAULT.with_after_crash(after_crash), ..takeover() };
        assert!(matches!(answer(&over(RecordState::Running), &asked), Claim::Held(_)));
    }
    let of = |fence| Ask { takeover: Takeover::Of(fence), ..ask() };
    assert_eq!(replaced(&over(RecordState::Running), &of(FENCE)), 3);
    assert!(matches!(answer(&over(RecordState::Running), &of(Fence::new(1))), Claim::Held(_)));
    assert!(matches!(answer(&record(RecordState::Running), &of(FENCE)), Claim::Running { .. }));
}

#[test]
fn a_lost_attempt_is_held_for_a_claim_without_takeover() {
    for lost in [over(RecordState::Running), retried(over(RecordState::Running))] {
        let Claim::Held(held) = answer(&lost, &ask()) else { panic!("not held") };
        assert_eq!((held.fence, held.attempt, held.since), (FENCE, 2, lost.created_at));
    }
}

fn write(token: Token, action: Action) -> Write {
    Write { key: Key::new("r", "k").unwrap(), token, action }
}

fn writes(token: Token, fence: Fence) -> [Write; 6] {
    [
        Action::Renew { fence, lease: Duration::from_secs(1) },
        Action::Complete { fence, outcome: outcome(1) },
        Action::Release { fence },
        Action::Abandon { fence, note: "why".into() },
        Action::Hold { fence, note: "why".into() },
        Action::Void,
    ]
    .map(|action| write(token, action))
}

#[test]
fn no_record_is_missing() {
    for write in writes(OLD, FENCE) {
        assert_eq!(unapplied(None, &write), Some(Ack::Missing));
    }
}

#[test]
fn another_owner_is_superseded() {
    for write in writes(MINE, FENCE) {
        assert_eq!(unapplied(Some(&record(RecordState::Running)), &write), Some(Ack::Superseded));
        assert_eq!(unapplied(Some(&record(RecordState::Released)), &write), Some(Ack::Superseded));
        assert_eq!(unapplied(Some(&record(done())), &write), Some(Ack::Finished));
    }
    let [renew, complete, release, abandon, hold, _] = writes(OLD, Fence::new(1));
    for write in [renew, complete, release, abandon, hold] {
        assert_eq!(unapplied(Some(&record(RecordState::Running)), &write), Some(Ack::Superseded));
    }
}

#[test]
fn the_same_write_again_is_repeated() {
    let [renew, complete, release, abandon, hold, void] = writes(OLD, FENCE);
    assert_eq!(unapplied(Some(&record(done())), &complete), Some(Ack::Repeated));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &release), Some(Ack::Repeated));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &void), Some(Ack::Repeated));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &complete), Some(Ack::Superseded));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &abandon), Some(Ack::Superseded));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &hold), Some(Ack::Superseded));
    assert_eq!(unapplied(Some(&record(RecordState::Released)), &renew), Some(Ack::Superseded));
}

#[test]
fn another_outcome_is_finished_not_repeated() {
    let other = write(OLD, Action::Complete { fence: FENCE, outcome: outcome(2) });
    assert_eq!(unapplied(Some(&record(done())), &other), Some(Ack::Finished));
    let [renew, _, release, abandon, hold, void] = writes(OLD, FENCE);
    for write in [renew, release, abandon, hold, void] {
        assert_eq!(unapplied(Some(&record(done())), &write), Some(Ack::Finished));
    }
}

#[test]
fn a_write_to_a_locked_record_is_sent_again_except_for_a_renewal() {
    let [renew, complete, release, abandon, hold, void] = writes(OLD, FENCE);
    assert_eq!(unapplied(Some(&record(RecordState::Running)), &renew), Some(Ack::Repeated));
    for write in [complete, release, abandon, hold, void] {
        assert_eq!(unapplied(Some(&record(RecordState::Running)), &write), None);
    }
}

fn acted(found: Option<&Record>, what: &OperatorChange) -> Result<Draft, OperatorAck> {
    operator_change(found, FENCE, what, "because", MINE, NOW)
}

fn every_change() -> [OperatorChange; 3] {
    [OperatorChange::Resolve(outcome(3)), OperatorChange::Reset, OperatorChange::Forget]
}

#[test]
fn an_operator_settles_a_held_key_under_a_new_token() {
    let found = over(RecordState::Running);
    let [resolved, reset, forgotten] =
        every_change().map(|what| acted(Some(&found), &what).expect("a held key can be settled"));
    assert_eq!((&resolved.state, resolved.retention), (&DraftState::Done(outcome(3)), found.retention));
    assert_eq!((&reset.state, reset.retention), (&DraftState::Released, found.retention));
    assert_eq!((&forgotten.state, forgotten.retention), (&DraftState::Released, Duration::ZERO));
    assert_eq!(resolved.note.as_deref(), Some("resolved: because"));
    assert_eq!(reset.note.as_deref(), Some("reset: because"));
    assert_eq!(forgotten.note.as_deref(), Some("forgotten: because"));
    for draft in [&resolved, &reset, &forgotten] {
        assert_eq!((draft.owner.as_str(), draft.lease, draft.fresh), ("operator", Duration::ZERO, false));
        assert_eq!((&draft.intent, draft.attempt), (&found.intent, found.attempt));
    }
    assert_eq!((resolved.token, reset.token, forgotten.token), (MINE, MINE, MINE));
}

#[test]
fn an_operator_never_touches_a_live_lease() {
    for what in every_change() {
        assert!(matches!(acted(Some(&record(RecordState::Running)), &what), Err(OperatorAck::Running(_))));
    }
}

#[test]
fn an_operator_only_forgets_what_is_not_held() {
    for state in [done(), RecordState::Released] {
        assert!(acted(Some(&record(state.clone())), &OperatorChange::Forget).is_ok());
        assert!(matches!(
            acted(Some(&record(state.clone())), &OperatorChange::Reset),
            Err(OperatorAck::Unfit(_))
        ));
        let resolve = OperatorChange::Resolve(outcome(3));
        assert!(matches!(acted(Some(&record(state)), &resolve), Err(OperatorAck::Unfit(_))));
    }
}

#[test]
fn an_operator_with_another_fence_changes_nothing() {
    let moved = Record { fence: Fence::new(7), ..over(RecordState::Running) };
    for what in every_change() {
        assert!(matches!(acted(Some(&moved), &what), Err(OperatorAck::Moved(found)) if *found == moved));
        assert_eq!(acted(None, &what), Err(OperatorAck::Missing));
        assert_eq!(
            acted(Some(&expired(retried(over(RecordState::Running)))), &what),
            Err(OperatorAck::Missing)
        );
        assert!(
            acted(Some(&expired(over(RecordState::Running))), &what).is_ok(),
            "a held key does not expire"
        );
    }
}

#[test]
fn a_look_answers_only_claims_that_would_not_run() {
    for would_run in
        [record(RecordState::Released), expired(record(done())), retried(over(RecordState::Running))]
    {
        assert!(look(Some(&would_run), &takeover(), NOW).is_none());
    }
    assert!(look(None, &ask(), NOW).is_none());
    assert!(matches!(look(Some(&record(done())), &ask(), NOW), Some(Claim::Done(_))));
    assert!(matches!(look(Some(&record(RecordState::Running)), &ask(), NOW), Some(Claim::Running { .. })));
    assert!(matches!(look(Some(&over(RecordState::Running)), &takeover(), NOW), Some(Claim::Held(_))));
    assert!(matches!(look(Some(&record(done())), &other_intent(), NOW), Some(Claim::Mismatch(_))));
}
