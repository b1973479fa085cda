//! The views of operators, while other processes write.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery, Stats};
use semel::store::Phase;
use semel::{Intent, Key, Outcome, Scope, SqliteStore, Store};
use testkit::claims::{ask, granted, retried};
use testkit::stores::sqlite::{Place, end_lease};
use testkit::until::until;

/// The keys of all listed records, page by page.
async fn listed(store: &SqliteStore, mut query: ListQuery) -> Vec<Key> {
    let mut seen = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= query.limit as usize);
        seen.extend(page.records.into_iter().map(|record| record.key));
        query.after = page.next;
        if query.after.is_none() {
            return seen;
        }
    }
}

#[tokio::test]
async fn every_key_is_on_exactly_one_page_whatever_its_length_and_phase() {
    const KEYS: usize = 300;
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let add = async |n: usize| granted(&store, &ask(&store, &format!("key-{n}")).await).await;
    let leases = join_all((0..KEYS).map(add)).await;
    let all: BTreeSet<Key> = leases.iter().map(|lease| lease.key().clone()).collect();
    let held: BTreeSet<Key> = leases.iter().step_by(3).map(|lease| lease.key().clone()).collect();
    held.iter().for_each(|key| end_lease(&client, key));
    let running: BTreeSet<Key> = all.difference(&held).cloned().collect();
    for (phase, expected) in [(None, &all), (Some(Phase::Held), &held), (Some(Phase::Running), &running)] {
        for limit in [1, 7, 100, 299, 300, 1_000] {
            let seen = listed(&store, ListQuery::default().with_phase(phase).with_limit(limit)).await;
            assert_eq!(seen.len(), expected.len(), "{phase:?} in pages of {limit}");
            assert!(seen.into_iter().collect::<BTreeSet<_>>() == *expected, "{phase:?} in pages of {limit}");
        }
    }
    let none = store.list(&ListQuery::default().with_limit(0)).await.unwrap();
    assert!(none.records.is_empty());
}

const PHASES: [Phase; 5] = [Phase::Running, Phase::Held, Phase::Lost, Phase::Done, Phase::Released];

#[tokio::test]
async fn each_filter_shows_what_matches_and_nothing_else() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    for realm in ["a", "b"] {
        for principal in ["", "p"] {
            for phase in PHASES {
                for (operation, age, is_expired) in [("charge", 1, false), ("refund", 1_000, true)] {
                    let scope = Scope::new(realm).unwrap().with_principal(principal).unwrap();
                    let key = scope.key(&format!("{} {operation}", phase.as_str())).unwrap();
                    let intent = Intent::of(operation, "", &1).unwrap();
                    let ask = ask(&store, "-").await.with_key(key).with_intent(intent);
                    let ask = if phase == Phase::Lost { retried(ask) } else { ask };
                    let lease = granted(&store, &ask).await;
                    let ack = match phase {
                        Phase::Done => store.complete(&lease, &Outcome::new(200).unwrap()).await,
                        Phase::Released => store.release(&lease).await,
                        Phase::Held | Phase::Lost => store.abandon(&lease, "test").await,
                        _ => store.renew(&lease, Duration::from_secs(60)).await,
                    };
                    ack.unwrap().applied().unwrap();
                    let change = "update semel_records set created_at = created_at - ?1 * 1000000, \
                                  retention = iif(?2, 0, retention), \
                                  expires_at = iif(?2 and expires_at is not null, 1, expires_at) where fence = ?3";
                    let fence = lease.fence().get() as i64;
                    assert_eq!(client.execute(change, (age, is_expired, fence)).unwrap(), 1);
                }
            }
        }
    }
    let page = store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(page.records.len(), 40);
    let text = |text: &str| Some(text.to_owned());
    let mut queries = vec![ListQuery::default()];
    queries.extend(PHASES.map(|phase| ListQuery::default().with_phase(Some(phase))));
    for filter in [
        ListQuery::default().with_realm(text("a")),
        ListQuery::default().with_principal(text("")),
        ListQuery::default().with_value(text("held charge")),
        ListQuery::default().with_operation(text("refund")),
        ListQuery::default().with_expired(Some(true)),
        ListQuery::default().with_expired(Some(false)),
        ListQuery::default().with_min_age(Some(Duration::from_secs(500))),
        ListQuery::default().with_min_age(Some(Duration::MAX)),
        ListQuery::default().with_realm(text("b")).with_principal(text("p")).with_value(text("done charge")),
        ListQuery::default().with_realm(text("nobody")),
    ] {
        let phases = PHASES.map(Some).into_iter().chain([None]);
        queries.extend(phases.map(|phase| filter.clone().with_phase(phase)));
    }
    for query in queries {
        let expected: Vec<&Key> =
            page.records.iter().filter(|record| query.matches(record, page.now)).map(|r| &r.key).collect();
        let found = store.list(&query).await.unwrap();
        let found: Vec<&Key> = found.records.iter().map(|record| &record.key).collect();
        assert_eq!(found, expected, "{query:?}");
    }
    let stats = Inspect::stats(&store).await.unwrap();
    let mut eight = Stats::default();
    PHASES.iter().for_each(|phase| (0..8).for_each(|_| eight.count(*phase)));
    assert_eq!(stats, eight);
}

#[tokio::test]
async fn pages_hold_each_record_once_while_others_are_added() {
    let place = Place::new();
    let store = place.store().await;
    let add = async |name: String| granted(&store, &ask(&store, &name).await).await;
    let before: BTreeSet<String> = (0..200).map(|n| format!("before-{n}")).collect();
    join_all(before.iter().cloned().map(add)).await;

    let (done, added) = (AtomicBool::new(false), AtomicUsize::new(0));
    let adding = async {
        while !done.load(Ordering::Relaxed) {
            let number = added.fetch_add(1, Ordering::Relaxed);
            let _lease = add(format!("meanwhile-{number}")).await;
        }
    };
    let paging = async {
        let (mut seen, mut query) = (Vec::new(), ListQuery::default().with_limit(23));
        loop {
            let page = store.list(&query).await.unwrap();
            seen.extend(page.records.into_iter().map(|record| record.key));
            query.after = page.next;
            if query.after.is_none() {
                done.store(true, Ordering::Relaxed);
                return seen;
            }
            let before = added.load(Ordering::Relaxed);
            until("another is added", async || added.load(Ordering::Relaxed) > before).await;
        }
    };
    let ((), seen) = tokio::join!(adding, paging);
    let unique: BTreeSet<String> = seen.iter().map(|key| key.value().to_owned()).collect();
    assert_eq!(unique.len(), seen.len(), "one was on two pages");
    assert!(unique.is_superset(&before));
}

/// Held keys are found without reading all other records.
#[tokio::test]
async fn records_without_an_outcome_have_an_index() {
    let place = Place::new();
    let (_store, client) = (place.store().await, place.client());
    let plan = |statement: &str| -> String {
        let mut plan = client.prepare(&format!("explain query plan {statement}")).unwrap();
        let numbers = plan.parameter_count();
        let nulls = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, numbers));
        plan.query_map(nulls, |row| row.get::<_, String>(3)).unwrap().map(Result::unwrap).collect()
    };
    let running = plan(include_str!("../../src/store/sqlite/sql/running.sql"));
    assert!(
        running.contains("USING INDEX semel_records_running (lease_until>? AND lease_until<?)"),
        "{running}"
    );
    let scan = plan(include_str!("../../src/store/sqlite/sql/scan.sql"));
    assert!(scan.contains("(id>? AND id<?)") && !scan.contains("TEMP B-TREE"), "{scan}");
    let prune = plan(include_str!("../../src/store/sqlite/sql/prune.sql"));
    assert!(prune.contains("USING INDEX semel_records_expiring (expires_at<?)"), "{prune}");
}

#[tokio::test]
async fn the_last_page_says_so() {
    let place = Place::new();
    let store = place.store().await;
    for number in 0..25 {
        let _lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
    }
    let page = store.list(&ListQuery::default().with_limit(25)).await.unwrap();
    assert_eq!((page.records.len(), page.next), (25, None));
}
