//! What is kept for how long.

use super::{Subject, again, key, other_intent, outcome, takeover};
use crate::answer::{Ack, Claim};
use crate::ask::Ask;
use crate::inspect::Query;
use crate::key::Key;
use crate::store::Prune;

/// A record whose retention is over is as good as absent, before any prune.
pub async fn an_expired_record_counts_as_absent(on: &Subject) {
    let short = |ask: Ask| Ask { terms: on.terms_kept(on.lease), ..ask };
    let asks = [short(on.ask(&key()).await), short(on.ask(&key()).await), short(on.ask(&key()).await)];
    let [done, released, held] = &asks;
    let lease = on.granted(done).await;
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
    let lease = on.granted(released).await;
    assert_eq!(on.store.release(&lease).await.expect("the store answers"), Ack::Applied);
    let _lost = on.granted(held).await;
    on.pass(on.lease).await;
    for ask in &asks {
        assert_eq!(on.store.find(&ask.key).await.expect("the store answers a find"), None);
        let many = on.store.find_many(std::slice::from_ref(&ask.key)).await.expect("the store answers");
        assert!(matches!(many.as_slice(), [Ok(None)]));
        let realm = Some(ask.key.scope().realm().to_owned());
        let query = Query { realm, expired: Some(true), ..Query::default() };
        assert_eq!(on.store.list(&query).await.expect("the store lists").records.len(), 1);
        assert_eq!(on.granted(&other_intent(ask)).await.attempt(), 1);
        assert!(matches!(on.claim(&again(ask)).await, Claim::Mismatch));
    }
}

/// Retention counts from the claim; completing does not move its end.
pub async fn completion_does_not_extend_retention(on: &Subject) {
    let (ask, lease) = on.running().await;
    let found =
        async || on.store.find(&ask.key).await.expect("the store answers").expect("there is a record");
    let before = found().await;
    on.pass(on.lease / 2).await;
    let _done = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    let after = found().await;
    assert_eq!(after.expires_at, before.expires_at);
    assert_eq!(after.expires_at.since(after.created_at), on.terms().retention());
}

/// An attempt that renews past the end of retention keeps its key.
pub async fn a_live_lease_outlives_retention(on: &Subject) {
    let ask = Ask { terms: on.terms_kept(on.lease), ..on.ask(&key()).await };
    let lease = on.granted(&ask).await;
    let _renewed = on.store.renew(&lease, on.lease * 4).await.expect("the store answers a renewal");
    on.pass(on.lease).await;
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Running { .. }));
    assert_eq!(on.store.prune(&of_realm(&ask.key, 10)).await.expect("the store prunes"), 0);
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
}

/// Done, released and held records past their retention go; all others stay.
pub async fn prune_removes_what_is_over_and_nothing_else(on: &Subject) {
    let scope = super::scope();
    let ask = async |name: &str, terms| Ask { terms, ..on.ask(&scope.key(name).expect("a valid key")).await };
    let short = on.terms_kept(on.lease);
    for (name, terms) in [("kept", on.terms()), ("over", short)] {
        let done = on.granted(&ask(&format!("{name}-done"), terms).await).await;
        let _done = on.store.complete(&done, &outcome(1)).await.expect("the store answers a complete");
        let released = on.granted(&ask(&format!("{name}-released"), terms).await).await;
        let _released = on.store.release(&released).await.expect("the store answers a release");
        let _held = on.granted(&ask(&format!("{name}-held"), terms).await).await;
    }
    let live = on.granted(&ask("live", short).await).await;
    let _renewed = on.store.renew(&live, on.lease * 4).await.expect("the store answers a renewal");
    on.pass(on.lease).await;
    assert_eq!(on.store.prune(&of_realm(live.key(), 100)).await.expect("the store prunes"), 3);
    assert_eq!(on.store.prune(&of_realm(live.key(), 100)).await.expect("the store prunes"), 0);
    for name in ["kept-done", "kept-released", "kept-held", "live"] {
        let key = scope.key(name).expect("a valid key");
        assert!(on.store.find(&key).await.expect("the store answers a find").is_some(), "{name} is gone");
    }
}

/// One call removes no more than it was asked to, and nothing of another realm.
pub async fn prune_is_bounded_and_keeps_to_its_realm(on: &Subject) {
    let (scope, other) = (super::scope(), super::scope());
    let keys: Vec<Key> = (0..5).map(|n| scope.key(&n.to_string()).expect("a valid key")).collect();
    let elsewhere = other.key("elsewhere").expect("a valid key");
    for key in keys.iter().chain([&elsewhere]) {
        let ask = Ask { terms: on.terms_kept(on.lease), ..on.ask(key).await };
        let _over_soon = on.granted(&ask).await;
    }
    on.pass(on.lease).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(on.store.prune(&of_realm(&keys[0], 2)).await.expect("the store prunes"));
    }
    assert_eq!(removed, [2, 2, 1, 0]);
    assert_eq!(on.store.prune(&of_realm(&elsewhere, 2)).await.expect("the store prunes"), 1);
}

fn of_realm(key: &Key, limit: u32) -> Prune {
    Prune { realm: Some(key.scope().realm().to_owned()), limit }
}
