//! Pruning beside concurrent load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use rusqlite::Connection;
use semel::admin::{Prune, Pruning, continuously_prune};
use semel::store::{Ack, Claim, Terms};
use semel::{Fence, Outcome, Store, Timestamp};
use testkit::claims::{ask, granted, retried};
use testkit::gates::Counted;
use testkit::stores::sqlite::Place;
use testkit::until::{LONG, until};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn names(client: &Connection) -> Vec<String> {
    let mut question = client.prepare("select key from semel_records order by key").unwrap();
    question.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Makes this many copies of each record, with keys of their own.
fn multiply(client: &Connection, copies: usize) {
    client
        .execute_batch(&format!(
            "create temp table copies as
            with recursive n (n) as (values (1) union all select n + 1 from n where n < {copies})
            select semel_records.*, n from semel_records, n;
            update copies set key = key || ' ' || n, id = randomblob(32);
            alter table copies drop column n;
            insert into semel_records select * from copies;
            drop table copies"
        ))
        .unwrap();
}

/// Records of every kind; the names of expired ones contain that word.
async fn all_kinds(place: &Place) -> Connection {
    let (store, client) = (place.store().await, place.client());
    let now = store.now().await.unwrap().as_micros();
    let (past, future) = (now - 3_600_000_000, now + 3_600_000_000);
    let outcome = "finished_at = 1, status = 200, headers = x'', body = zeroblob(200)";
    for (name, change) in [
        ("running", format!("after_crash = 'retry', lease_until = {future}, expires_at = {future}")),
        ("held", format!("lease_until = {past}")),
        ("lost", format!("after_crash = 'retry', lease_until = {past}, expires_at = {future}")),
        ("lost expired", format!("after_crash = 'retry', lease_until = {past}, expires_at = {past}")),
        ("released", format!("state = 'released', expires_at = {future}")),
        ("released expired", format!("state = 'released', lease_until = {future}, expires_at = {past}")),
        ("done", format!("state = 'done', {outcome}, expires_at = {future}")),
        ("done expired", format!("state = 'done', {outcome}, lease_until = {future}, expires_at = {past}")),
    ] {
        let _lease = granted(&store, &ask(&store, name).await).await;
        let update = format!("update semel_records set {change} where key = ?1");
        assert_eq!(client.execute(&update, [name]).unwrap(), 1);
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pruners_remove_each_expired_record_once_and_nothing_else() {
    // The copies are enough for several transactions of each kind.
    const COPIES: usize = 1_500;
    let place = Place::new();
    let client = all_kinds(&place).await;
    multiply(&client, COPIES);

    let stores = join_all((0..4).map(|_| place.store())).await;
    let removed = join_all(stores.iter().map(async |store| {
        let mut removed = 0;
        loop {
            let gone = store.prune(&Prune::default().with_limit(700)).await.unwrap();
            assert!(gone <= 700);
            removed += gone;
            // Another pruner may have been faster; when nothing is left, all pruners learn it.
            if gone == 0 {
                return removed;
            }
        }
    }));
    assert_eq!(removed.await.into_iter().sum::<u64>(), 3 * (COPIES as u64 + 1));
    let left = names(&client);
    assert_eq!(left.len(), 5 * (COPIES + 1));
    assert!(left.iter().all(|name| !name.contains("expired")));
}

#[tokio::test]
async fn only_the_realm_that_was_named_is_pruned_and_no_more_than_asked_for() {
    let place = Place::new();
    let client = all_kinds(&place).await;
    multiply(&client, 1_000);
    client.execute_batch("update semel_records set realm = 'other' where key like 'done%'").unwrap();
    let store = place.store().await;
    let prune = async |realm: &str, limit| {
        store.prune(&Prune::default().with_realm(Some(realm.to_owned())).with_limit(limit)).await.unwrap()
    };
    assert_eq!(prune("nobody", 10_000).await, 0);
    assert_eq!(prune("other", 1).await, 1);
    assert_eq!(prune("other", 0).await, 0);
    assert_eq!(prune("other", 10_000).await, 1_000);
    assert_eq!(prune("tests", 1_999).await, 1_999);
    assert_eq!(prune("tests", 10_000).await, 3);
    assert_eq!(names(&client).len(), 5 * 1_001);
}

/// A grant, by the fence, which contains the store's clock.
struct Grant {
    fence: Fence,
    deadline: Timestamp,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_pruned_and_claimed_at_once_has_one_owner_at_a_time() {
    const KEYS: usize = 8;
    const GRANTS: usize = 8;
    let place = Place::new();
    let stores = [place.store().await, place.store().await];
    let grants: Arc<Mutex<BTreeMap<String, Vec<Grant>>>> = Arc::default();
    let enough = {
        let grants = Arc::clone(&grants);
        move || {
            let grants = grants.lock().unwrap();
            grants.len() == KEYS && grants.values().all(|grants| grants.len() >= GRANTS)
        }
    };
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let (store, grants, enough) = (stores[number % 2].clone(), Arc::clone(&grants), enough.clone());
        tasks.spawn(async move {
            // A record expires soon after its outcome is recorded, or its lease is over.
            let terms = Terms::new(Terms::MIN_LEASE, Terms::MIN_LEASE).unwrap();
            for turn in number.. {
                if enough() {
                    return;
                }
                let name = format!("key-{}", turn % KEYS);
                let ask = retried(ask(&store, &name).await.with_terms(terms));
                let Claim::Granted(lease) = store.claim(&ask).await.unwrap() else { continue };
                let grant = Grant { fence: lease.fence(), deadline: lease.deadline() };
                grants.lock().unwrap().entry(name).or_default().push(grant);
                // Some attempts complete, some are lost.
                if number % 3 > 0 {
                    let _ack = store.complete(&lease, &Outcome::json(&number).unwrap()).await;
                }
            }
        });
    }
    for number in 0..4 {
        let (store, enough) = (stores[number % 2].clone(), enough.clone());
        tasks.spawn(async move {
            while !enough() {
                store.prune(&Prune::default()).await.unwrap();
                // A pruner without pauses would take the processor from the claims that it races
                // with.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    timeout(LONG, tasks.join_all()).await.expect("keys are granted again and again");
    for (name, grants) in &mut *grants.lock().unwrap() {
        grants.sort_by_key(|grant| grant.fence);
        for pair in grants.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            assert!(before.fence < after.fence, "{name}: two grants with one fence");
            let claimed = Timestamp::from_micros(after.fence.get());
            assert!(before.deadline <= claimed, "{name}: granted while a lease was alive");
        }
    }
}

#[tokio::test]
async fn a_record_that_is_renewed_is_not_pruned() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let lease = granted(&store, &retried(ask(&store, "renewed").await)).await;
    client.execute("update semel_records set lease_until = 1, retention = 0, expires_at = 1", []).unwrap();
    assert_eq!(store.renew(&lease, Duration::from_secs(60)).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    assert_eq!(store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn pruning_in_the_background_goes_on_after_failures_until_it_is_stopped() {
    let place = Place::new();
    // Without a schema, every call fails.
    let pruning = Pruning::default().with_idle(Duration::from_millis(20)).with_busy(Duration::from_millis(5));
    let (counted, calls) = Counted::to(place.options().open().await.unwrap());
    let pruner = continuously_prune(counted, pruning);
    calls.next().await;

    let (store, client) = (place.store().await, place.client());
    let expired = async || {
        granted(&store, &ask(&store, "record").await).await;
        client.execute("update semel_records set lease_until = 1, expires_at = 1", []).unwrap();
    };
    expired().await;
    until("it is pruned", async || names(&client).is_empty()).await;
    timeout(LONG, pruner.stop()).await.expect("it ends when told to");
    assert!(calls.are_over());
    expired().await;
    assert_eq!(names(&client), ["record"]);
}
