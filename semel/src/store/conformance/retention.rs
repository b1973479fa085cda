//! Retention: how long each kind of record is kept.

use super::{Subject, again, key, other_intent, outcome, retry, takeover};
use crate::protocol::answer::{Ack, Claim, OperatorAck, Void};
use crate::protocol::ask::Ask;
use crate::store::Prune;
use crate::store::inspect::ListQuery;
use crate::words::key::Key;
use crate::words::outcome::Outcome;
use crate::words::record::RecordState;
use crate::words::terms::{AfterCrash, Terms};
use crate::words::time::Timestamp;

/// A record whose retention is over counts as absent, also before it is pruned.
pub async fn an_expired_record_counts_as_absent(on: &Subject) {
    let short = |ask: Ask| Ask { terms: on.terms_kept(on.lease), ..ask };
    let lost = retry(short(on.ask(&key()).await));
    let asks = [short(on.ask(&key()).await), short(on.ask(&key()).await), lost];
    let [done, released, lost] = &asks;
    let lease = on.granted(done).await;
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
    let lease = on.granted(released).await;
    assert_eq!(on.store.release(&lease).await.expect("the store answers"), Ack::Applied);
    let _lost = on.granted(lost).await;
    // The retention of a lost attempt begins when its lease is over.
    on.pass(on.lease * 2).await;
    for ask in &asks {
        assert_eq!(on.store.find(&ask.key).await.expect("the store answers a find"), None);
        let many = on.store.find_many(std::slice::from_ref(&ask.key)).await.expect("the store answers");
        assert!(matches!(many.as_slice(), [Ok(None)]));
        let realm = Some(ask.key.scope().realm().to_owned());
        let query = ListQuery { realm, expired: Some(true), ..ListQuery::default() };
        assert_eq!(on.store.list(&query).await.expect("the store lists").records.len(), 1);
        assert_eq!(on.granted(&other_intent(ask)).await.attempt(), 1);
        assert!(matches!(on.claim(&again(ask)).await, Claim::Mismatch(_)));
    }
}

/// An outcome is replayed for its whole retention, also when the work took longer than that.
pub async fn an_outcome_is_replayed_for_its_whole_retention(on: &Subject) {
    for policy in [AfterCrash::Hold, AfterCrash::Retry] {
        let terms = on.terms_kept(on.lease * 2).with_after_crash(policy);
        let ask = Ask { terms, ..on.ask(&key()).await };
        let lease = on.granted(&ask).await;
        let _renewed = on.store.renew(&lease, on.lease * 3).await.expect("the store answers a renewal");
        on.pass(on.lease * 3).await;
        let ack = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
        assert_eq!(ack, Ack::Applied);
        is_replayed(on, &ask, &outcome(1)).await;
    }
}

/// A released or voided record expires as soon as no copy of its claim can arrive; a reset one is
/// kept for its whole retention.
pub async fn a_released_record_is_kept_for_late_copies_only(on: &Subject) {
    let (released, _) = on.released().await;
    let (voided, _) = on.running().await;
    let void = on.store.void(&voided.key, voided.token, voided.not_after).await;
    assert!(matches!(void.expect("the store answers a void"), Void::Early(_)));
    let (reset, held) = on.held().await;
    let change = on.store.reset(&reset.key, held.fence(), "nothing happened").await;
    assert_eq!(change.expect("the store answers a reset"), OperatorAck::Applied);
    let kept = async |ask: &Ask| {
        let found = on.store.find(&ask.key).await.expect("the store answers a find").expect("it is kept");
        assert_eq!(found.state, RecordState::Released);
        found.expires_at().expect("it expires").since(found.updated_at)
    };
    for ask in [&released, &voided] {
        assert_eq!(kept(ask).await, Terms::RELEASED_RETENTION);
    }
    assert_eq!(kept(&reset).await, reset.terms.retention());
    let short = Ask { terms: on.terms_kept(on.lease), ..on.ask(&key()).await };
    let lease = on.granted(&short).await;
    assert_eq!(on.store.release(&lease).await.expect("the store answers a release"), Ack::Applied);
    assert_eq!(kept(&short).await, on.lease);
    let next = on.granted(&again(&released)).await;
    assert_eq!(
        on.store.complete(&next, &outcome(1)).await.expect("the store answers a complete"),
        Ack::Applied
    );
    let done = on.store.find(&released.key).await.expect("the store answers a find").expect("it is kept");
    assert_eq!((next.attempt(), done.retention), (2, released.terms.retention()));
}

/// A held key that is resolved late is replayed for its whole retention, counted from the change.
pub async fn a_resolved_outcome_is_replayed_for_its_whole_retention(on: &Subject) {
    let ask = Ask { terms: on.terms_kept(on.lease * 2), ..on.ask(&key()).await };
    let held = on.granted(&ask).await;
    on.pass(on.lease * 4).await;
    let change = on.store.resolve(&ask.key, held.fence(), &outcome(7), "seen at the bank").await;
    assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
    is_replayed(on, &ask, &outcome(7)).await;
}

/// Checks that every handle replays the outcome until nearly the end of a retention of two leases
/// that has just begun, and that the outcome is then gone.
async fn is_replayed(on: &Subject, ask: &Ask, outcome: &Outcome) {
    on.pass(on.lease).await;
    for store in [&on.store, &on.peer] {
        let claim = store.claim(&takeover(ask)).await.expect("the store answers a claim");
        assert!(matches!(&claim, Claim::Done(done) if done.outcome == *outcome), "{claim:?}");
    }
    assert_eq!(on.store.prune(&of_realm(&ask.key, 10)).await.expect("the store prunes"), 0);
    let record = on.store.find(&ask.key).await.expect("the store answers").expect("there is a record");
    let RecordState::Done { finished_at, .. } = record.state else { panic!("{record:?}") };
    assert_eq!(record.expires_at(), Some(finished_at.after(on.lease * 2)));
    on.pass(on.lease).await;
    assert_eq!(on.granted(&again(ask)).await.attempt(), 1);
}

/// A held key never expires: time is no evidence that nothing happened.
pub async fn a_held_key_never_expires(on: &Subject) {
    let ask = Ask { terms: on.terms_kept(on.lease), ..on.ask(&key()).await };
    let lease = on.granted(&ask).await;
    on.pass(on.lease * 4).await;
    assert_eq!(on.store.prune(&of_realm(&ask.key, 10)).await.expect("the store prunes"), 0);
    for store in [&on.store, &on.peer] {
        let record = store.find(&ask.key).await.expect("the store answers").expect("there is a record");
        assert_eq!(record.expires_at(), None);
        let claim = store.claim(&takeover(&ask)).await.expect("the store answers a claim");
        assert!(matches!(&claim, Claim::Held(held) if held.fence == lease.fence()), "{claim:?}");
        assert!(matches!(on.claim(&other_intent(&ask)).await, Claim::Mismatch(_)));
    }
    let change = on.store.reset(&ask.key, lease.fence(), "it did not happen").await;
    assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
    assert_eq!(on.granted(&again(&ask)).await.attempt(), 2);
}

/// A lost key is kept for its retention, counted from the end of the lease.
pub async fn a_lost_key_expires_with_its_retention(on: &Subject) {
    let ask = retry(Ask { terms: on.terms_kept(on.lease * 3), ..on.ask(&key()).await });
    let lease = on.granted(&ask).await;
    on.pass(on.lease * 2).await;
    let record = on.store.find(&ask.key).await.expect("the store answers").expect("there is a record");
    assert_eq!(record.expires_at(), Some(lease.deadline().after(on.lease * 3)));
    assert!(matches!(on.claim(&other_intent(&ask)).await, Claim::Mismatch(_)));
    on.pass(on.lease * 2).await;
    assert_eq!(on.store.find(&ask.key).await.expect("the store answers a find"), None);
    assert_eq!(on.store.prune(&of_realm(&ask.key, 10)).await.expect("the store prunes"), 1);
}

/// An attempt that renews its lease past the end of the retention keeps its key.
pub async fn a_live_lease_outlives_retention(on: &Subject) {
    let ask = retry(Ask { terms: on.terms_kept(on.lease), ..on.ask(&key()).await });
    let lease = on.granted(&ask).await;
    let _renewed = on.store.renew(&lease, on.lease * 4).await.expect("the store answers a renewal");
    on.pass(on.lease).await;
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Running { .. }));
    assert_eq!(on.store.prune(&of_realm(&ask.key, 10)).await.expect("the store prunes"), 0);
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
}

/// Prune removes done, released and lost records past their retention, and keeps all other records.
pub async fn prune_removes_what_is_over_and_nothing_else(on: &Subject) {
    let scope = super::scope();
    let ask = async |name: &str, terms| Ask { terms, ..on.ask(&scope.key(name).expect("a valid key")).await };
    let short = on.terms_kept(on.lease);
    for (name, terms) in [("kept", on.terms()), ("over", short)] {
        let done = on.granted(&ask(&format!("{name}-done"), terms).await).await;
        let _done = on.store.complete(&done, &outcome(1)).await.expect("the store answers a complete");
        let released = on.granted(&ask(&format!("{name}-released"), terms).await).await;
        let _released = on.store.release(&released).await.expect("the store answers a release");
        let _lost = on.granted(&retry(ask(&format!("{name}-lost"), terms).await)).await;
        let _held = on.granted(&ask(&format!("{name}-held"), terms).await).await;
    }
    let live = on.granted(&ask("live", short).await).await;
    let _renewed = on.store.renew(&live, on.lease * 8).await.expect("the store answers a renewal");
    on.pass(on.lease * 2).await;
    assert_eq!(on.store.prune(&of_realm(live.key(), 100)).await.expect("the store prunes"), 3);
    assert_eq!(on.store.prune(&of_realm(live.key(), 100)).await.expect("the store prunes"), 0);
    for name in ["kept-done", "kept-released", "kept-lost", "kept-held", "over-held", "live"] {
        let key = scope.key(name).expect("a valid key");
        assert!(on.store.find(&key).await.expect("the store answers a find").is_some(), "{name} is gone");
    }
}

/// One prune removes at most as many records as its limit, and none of another realm.
pub async fn prune_is_bounded_and_keeps_to_its_realm(on: &Subject) {
    let (scope, other) = (super::scope(), super::scope());
    let keys: Vec<Key> = (0..5).map(|n| scope.key(&n.to_string()).expect("a valid key")).collect();
    let elsewhere = other.key("elsewhere").expect("a valid key");
    for key in keys.iter().chain([&elsewhere]) {
        let ask = retry(Ask { terms: on.terms_kept(on.lease), ..on.ask(key).await });
        let _over_soon = on.granted(&ask).await;
    }
    on.pass(on.lease * 2).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(on.store.prune(&of_realm(&keys[0], 2)).await.expect("the store prunes"));
    }
    assert_eq!(removed, [2, 2, 1, 0]);
    assert_eq!(on.store.prune(&of_realm(&elsewhere, 2)).await.expect("the store prunes"), 1);
}

/// A prune with a cutoff removes only records that had expired by then, and never one that has not
/// expired.
pub async fn prune_keeps_what_expired_after_its_cutoff(on: &Subject) {
    let ask = Ask { terms: on.terms_kept(on.lease), ..on.ask(&key()).await };
    let lease = on.granted(&ask).await;
    let _released = on.store.release(&lease).await.expect("the store answers a release");
    let prune = async |before: Timestamp| {
        let prune = Prune { before: Some(before), ..of_realm(&ask.key, 10) };
        on.store.prune(&prune).await.expect("the store prunes")
    };
    let claimed = on.store.now().await.expect("the store tells its time");
    assert_eq!(prune(claimed.after(on.lease * 100)).await, 0, "it has not expired");
    on.pass(on.lease * 2).await;
    assert_eq!(prune(claimed).await, 0, "it had not expired then");
    assert_eq!(prune(claimed.after(on.lease * 2)).await, 1);
}

fn of_realm(key: &Key, limit: u32) -> Prune {
    Prune { realm: Some(key.scope().realm().to_owned()), limit, ..Prune::default() }
}
