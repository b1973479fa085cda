//! Operators: what they can see and change.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Subject, again, outcome, retry, scope, takeover};
use crate::protocol::answer::{Ack, Claim, OperatorAck};
use crate::store::inspect::{Inspect, ListQuery};
use crate::words::key::Scope;
use crate::words::lease::Fence;
use crate::words::record::{Phase, Record};

const PHASES: [Phase; 5] = [Phase::Running, Phase::Held, Phase::Lost, Phase::Done, Phase::Released];

/// All matching keys, page by page.
async fn listed(on: &Subject, query: ListQuery) -> Vec<String> {
    let mut values = Vec::new();
    let mut query = query;
    loop {
        let page = on.peer.list(&query).await.expect("the store lists");
        assert!(page.records.len() <= query.limit as usize, "a page is as long as asked for");
        values.extend(page.records.iter().map(|record| record.key.value().to_owned()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return values,
        }
    }
}

/// The phases of the stale records, in order. A page of a large store may end before it is full.
async fn stale(on: &Subject, query: ListQuery) -> Vec<Phase> {
    let (mut phases, mut query) = (Vec::new(), query);
    loop {
        let page = on.store.stale(&query).await.expect("the store lists");
        phases.extend(page.records.iter().map(|record| record.phase(page.now)));
        query.after = page.next;
        if query.after.is_none() {
            phases.sort();
            return phases;
        }
    }
}

/// A key of this name that stays in this phase for a long time.
async fn put(on: &Subject, scope: &Scope, name: &str, phase: Phase) {
    let ask = on.ask(&scope.key(name).expect("a valid key")).await;
    let lease = on.granted(&if phase == Phase::Lost { retry(ask) } else { ask }).await;
    let written = match phase {
        Phase::Running => on.store.renew(&lease, Duration::from_secs(600)).await,
        Phase::Held | Phase::Lost => on.store.abandon(&lease, "to be held or lost").await,
        Phase::Done => on.store.complete(&lease, &outcome(1)).await,
        Phase::Released => on.store.release(&lease).await,
    };
    assert_eq!(written.expect("the store answers the owner"), Ack::Applied);
}

/// One key in each phase, named after it, in a realm of their own.
async fn one_of_each(on: &Subject) -> Scope {
    let scope = scope();
    for phase in PHASES {
        put(on, &scope, phase.as_str(), phase).await;
    }
    scope
}

fn in_realm(scope: &Scope) -> ListQuery {
    ListQuery { realm: Some(scope.realm().to_owned()), ..ListQuery::default() }
}

/// A listing shows every record that matches on exactly one page.
pub async fn list_pages_through_all_that_match(on: &Subject) {
    let scope = scope();
    let names: BTreeSet<String> = (0..25).map(|n| format!("key {n}, with \"quotes\" and: colons")).collect();
    for name in &names {
        let _running = on.granted(&on.ask(&scope.key(name).expect("a valid key")).await).await;
    }
    for limit in [1, 7, 25, 100] {
        let values = listed(on, ListQuery { limit, ..in_realm(&scope) }).await;
        assert_eq!(values.len(), names.len(), "pages of {limit}");
        assert_eq!(values.into_iter().collect::<BTreeSet<_>>(), names);
    }
}

/// A listing can be narrowed by phase, realm, principal, key, operation, retention and age.
pub async fn list_filters_by_what_a_record_says(on: &Subject) {
    let scope = one_of_each(on).await;
    let of = |change: &dyn Fn(&mut ListQuery)| {
        let mut query = in_realm(&scope);
        change(&mut query);
        query
    };
    for phase in PHASES {
        assert_eq!(listed(on, of(&|query| query.phase = Some(phase))).await, [phase.as_str()]);
    }
    assert_eq!(listed(on, of(&|query| query.principal = Some("tester".into()))).await.len(), 5);
    assert_eq!(listed(on, of(&|query| query.principal = Some("nobody".into()))).await.len(), 0);
    assert_eq!(listed(on, of(&|query| query.value = Some("done".into()))).await, ["done"]);
    assert_eq!(listed(on, of(&|query| query.operation = Some("charge".into()))).await.len(), 5);
    assert_eq!(listed(on, of(&|query| query.operation = Some("refund".into()))).await.len(), 0);
    assert_eq!(listed(on, of(&|query| query.expired = Some(false))).await.len(), 5);
    assert_eq!(listed(on, of(&|query| query.expired = Some(true))).await.len(), 0);
    // No store is so slow that the records are an hour old by now.
    let hour = Duration::from_secs(3_600);
    assert_eq!(listed(on, of(&|query| query.min_age = Some(hour))).await.len(), 0);
    on.pass(on.lease).await;
    // The age counts from the claim, not from the last sign of life.
    let running = scope.key("running").expect("a valid key");
    let lease = record(&*on.store, &running).await.lease();
    let _heard = on.store.renew(&lease, Duration::from_secs(600)).await.expect("the store answers a renewal");
    assert_eq!(listed(on, of(&|query| query.min_age = Some(on.lease))).await.len(), 5);
    let unheard = listed(on, of(&|query| query.unheard_for = Some(on.lease))).await;
    assert_eq!((unheard.len(), unheard.contains(&"running".to_owned())), (4, false));
}

/// A stale record is a running one whose lease is over; `stale` lists these and no others.
pub async fn stale_lists_held_and_lost_keys_only(on: &Subject) {
    let scope = one_of_each(on).await;
    assert_eq!(stale(on, in_realm(&scope)).await, [Phase::Held, Phase::Lost]);
    for phase in PHASES {
        let query = ListQuery { phase: Some(phase), ..in_realm(&scope) };
        let found = stale(on, query).await;
        assert_eq!(found.len(), usize::from(matches!(phase, Phase::Held | Phase::Lost)), "{phase:?}");
    }
    let other = ListQuery { value: Some("done".into()), ..in_realm(&scope) };
    assert_eq!(stale(on, other).await, []);
}

/// The counts include every phase; they may lag a little.
pub async fn stats_count_by_phase(on: &Subject) {
    let counts = async || {
        let stats = on.store.stats().await.expect("the store counts");
        [stats.running, stats.held, stats.lost, stats.done, stats.released]
    };
    let before = counts().await;
    let (scope, added) = (scope(), [4, 8, 12, 16, 20]);
    for (phase, count) in PHASES.into_iter().zip(added) {
        for number in 0..count {
            put(on, &scope, &format!("{} {number}", phase.as_str()), phase).await;
        }
    }
    for _ in 0..100 {
        // Other tests may use the store, too, and some of their leases may run out in between; but
        // these records are new.
        let now = counts().await;
        let grown = |((now, before), added): ((u64, u64), u64)| now + 2 >= before + added;
        if now.into_iter().zip(before).zip(added).all(grown) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{added:?} more were not counted within five seconds: {before:?}, {:?}", counts().await);
}

async fn record(store: &dyn Inspect, key: &crate::words::key::Key) -> Record {
    store.find(key).await.expect("the store answers a find").expect("there is a record")
}

/// A resolved key is replayed with the operator's outcome, and the lost owner can no longer write.
pub async fn a_resolved_key_is_replayed(on: &Subject) {
    let (ask, lost) = on.held().await;
    let change = on.peer.resolve(&ask.key, lost.fence(), &outcome(7), "seen at the bank").await;
    assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
    assert!(
        matches!(on.claim(&takeover(&ask)).await, Claim::Done(recorded) if recorded.outcome == outcome(7))
    );
    assert_eq!(on.store.complete(&lost, &outcome(1)).await.expect("the store answers"), Ack::Finished);
    let record = record(&*on.store, &ask.key).await;
    assert!(record.fence > lost.fence() && record.token != lost.token());
    let change = on.store.resolve(&ask.key, record.fence, &outcome(8), "again").await;
    assert!(matches!(change.expect("the store answers"), OperatorAck::Unfit(_)));
}

/// A reset key can be claimed again, and the lost owner can no longer write.
pub async fn a_reset_key_runs_again(on: &Subject) {
    let (ask, lost) = on.held().await;
    let change = on.peer.reset(&ask.key, lost.fence(), "the host burnt down").await;
    assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
    assert_eq!(on.store.complete(&lost, &outcome(1)).await.expect("the store answers"), Ack::Superseded);
    let next = on.granted(&again(&ask)).await;
    assert!(next.fence() > lost.fence());
    assert_eq!(next.attempt(), 2);
}

/// A forgotten key counts as never used, and nothing of its outcome can be read.
pub async fn a_forgotten_key_is_new(on: &Subject) {
    let held = on.held().await;
    for (ask, lease) in [on.done().await, on.released().await, held] {
        let change = on.store.forget(&ask.key, lease.fence(), "a customer's wish").await;
        assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
        assert_eq!(on.peer.find(&ask.key).await.expect("the store answers a find"), None);
        let page = on.store.list(&in_realm(ask.key.scope())).await.expect("the store lists");
        assert!(page.records.iter().all(|record| record.outcome().is_none()));
        let fresh = on.granted(&super::other_intent(&ask)).await;
        assert_eq!(fresh.attempt(), 1);
        assert!(fresh.fence() > lease.fence());
    }
}

/// A change that names another fence than that of the record changes nothing and shows the record.
pub async fn a_change_with_another_fence_changes_nothing(on: &Subject) {
    let (ask, lost) = on.held().await;
    let before = record(&*on.store, &ask.key).await;
    let other = Fence::new(lost.fence().get() + 1);
    let changes = [
        on.store.resolve(&ask.key, other, &outcome(7), "x").await,
        on.store.reset(&ask.key, other, "x").await,
        on.store.forget(&ask.key, other, "x").await,
    ];
    for change in changes {
        assert_eq!(change.expect("the store answers"), OperatorAck::Moved(Box::new(before.clone())));
    }
    assert_eq!(record(&*on.store, &ask.key).await, before);
    let nowhere = super::key();
    assert_eq!(on.store.reset(&nowhere, other, "x").await.expect("the store answers"), OperatorAck::Missing);
}

/// An operator cannot settle a key while the lease of its attempt is alive.
pub async fn a_change_never_touches_a_live_lease(on: &Subject) {
    let (ask, lease) = on.running().await;
    let changes = [
        on.store.resolve(&ask.key, lease.fence(), &outcome(7), "x").await,
        on.store.reset(&ask.key, lease.fence(), "x").await,
        on.store.forget(&ask.key, lease.fence(), "x").await,
    ];
    for change in changes {
        assert!(matches!(change.expect("the store answers"), OperatorAck::Running(_)));
    }
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
}

/// The note of a record has an operator's change with its reason and time, also when the key runs
/// again.
pub async fn a_change_is_kept_with_its_reason(on: &Subject) {
    let (ask, lost) = on.held().await;
    let change = on.store.reset(&ask.key, lost.fence(), "ticket 4711").await;
    assert_eq!(change.expect("the store answers"), OperatorAck::Applied);
    let next = on.granted(&again(&ask)).await;
    let note = record(&*on.peer, &ask.key).await.note.expect("the change is noted");
    assert_eq!(&*note.text, "reset: ticket 4711");
    assert!(note.at >= lost.deadline() && note.at <= next.deadline());
}
