//! Pruning beside concurrent load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Prune, Pruning, continuously_prune};
use semel::store::{Ack, Claim, Terms};
use semel::{Fence, Outcome, PostgresStore, Store, Timestamp};
use testkit::claims::{ask, granted, retried};
use testkit::gates::Counted;
use testkit::stores::postgres::Place;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Client;

/// No wait in these tests is longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A key that is done and whose retention is over.
async fn expired(store: &PostgresStore, client: &Client, name: &str) {
    let lease = granted(store, &ask(store, name).await).await;
    store.complete(&lease, &Outcome::json(name).unwrap()).await.unwrap().applied().unwrap();
    let expire = "update records set retention = 0 where key = $1";
    assert_eq!(client.execute(expire, &[&name]).await.unwrap(), 1);
}

async fn names(client: &Client) -> Vec<String> {
    let rows = client.query("select key from records order by key collate \"C\"", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn until_gone(client: &Client, name: &str) {
    let gone = async {
        while names(client).await.iter().any(|found| found == name) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("nobody pruned it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pruners_remove_each_expired_record_once_and_nothing_else() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for (name, change) in [
        ("running", "retention = 0, after_crash = 'retry'"),
        ("held", "retention = 0, lease_until = clock_timestamp()"),
        ("lost", "after_crash = 'retry', lease_until = clock_timestamp()"),
        ("lost expired", "retention = 0, after_crash = 'retry', lease_until = clock_timestamp()"),
        ("released expired", "retention = 0, state = 'released'"),
    ] {
        let _lease = granted(&store, &ask(&store, name).await).await;
        let update = format!("update records set {change} where key = $1");
        assert_eq!(client.execute(&update, &[&name]).await.unwrap(), 1);
    }
    // The rows are enough for several sweeps: one reads 256 pages.
    let copies = "
        insert into records
        select (jsonb_populate_record(record, jsonb_build_object(
            'key', record.key || n, 'id', sha256(convert_to(record.key || n, 'UTF8')), 'body', repeat('00', 200)
        ) - case record.state when 'done' then '' else 'body' end)).*
        from records as record, generate_series(1, 1500) as n";
    expired(&store, &client, "done expired").await;
    client.batch_execute(copies).await.unwrap();
    let pages = "select pg_relation_size('records') / 8192";
    assert!(client.query_one(pages, &[]).await.unwrap().get::<_, i64>(0) > 512);

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
    assert_eq!(removed.await.into_iter().sum::<u64>(), 3 * 1501);
    let left = names(&client).await;
    assert_eq!(left.len(), 3 * 1501);
    assert!(left.iter().all(|name| !name.contains("expired")));
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
    let place = Place::shared();
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
                let Ok(Claim::Granted(lease)) = store.claim(&ask).await else { continue };
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
    timeout(PATIENCE, tasks.join_all()).await.expect("keys are granted again and again");
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
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &retried(ask(&store, "renewed").await)).await;
    let over = "update records set lease_until = clock_timestamp(), retention = 0";
    client.batch_execute(over).await.unwrap();
    assert_eq!(store.renew(&lease, Duration::from_secs(60)).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    assert_eq!(store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_record_that_is_locked_is_left_for_another_time() {
    let place = Place::shared();
    let (store, client, user) = (place.store().await, place.client().await, place.client().await);
    for name in ["locked", "free"] {
        expired(&store, &client, name).await;
    }
    user.batch_execute("begin; select from records where key = 'locked' for key share").await.unwrap();
    let removed = timeout(PATIENCE, store.prune(&Prune::default())).await;
    assert_eq!(removed.expect("it waited for somebody's transaction").unwrap(), 1);
    assert_eq!(names(&client).await, ["locked"]);
    user.batch_execute("commit").await.unwrap();
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn partitions_are_pruned_each_by_itself() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let split = "
        alter table records rename to whole;
        create table records (like whole including all) partition by hash (id);
        create table \"part 0\" partition of records for values with (modulus 3, remainder 0);
        create table part_1 partition of records for values with (modulus 3, remainder 1)
            partition by hash (id);
        create table part_1_all partition of part_1 for values with (modulus 1, remainder 0);
        create table part_2 partition of records for values with (modulus 3, remainder 2);
        drop table whole cascade";
    client.batch_execute(split).await.unwrap();
    let mut kept = Vec::new();
    for number in 10..40 {
        // Each partition has both kinds, at the same addresses.
        expired(&store, &client, &format!("over-{number}")).await;
        kept.push(format!("kept-{number}"));
        let lease = granted(&store, &ask(&store, &kept[kept.len() - 1]).await).await;
        store.complete(&lease, &Outcome::json("kept").unwrap()).await.unwrap().applied().unwrap();
    }
    let filled = "select count(distinct tableoid) from records";
    assert_eq!(client.query_one(filled, &[]).await.unwrap().get::<_, i64>(0), 3);
    assert_eq!(store.prune(&Prune::default().with_limit(20)).await.unwrap(), 20);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 10);
    assert_eq!(names(&client).await, kept);
}

#[tokio::test]
async fn pruning_in_the_background_goes_on_after_failures_until_it_is_stopped() {
    let shared = Place::shared();
    let sign = if shared.url.contains('?') { '&' } else { '?' };
    let token = semel::store::Token::random();
    let own = Place { url: format!("{}{sign}application_name={token}", shared.url), ..shared };
    let place = Place { schema: own.schema.clone(), ..Place::shared() };
    let client = place.client().await;
    let connections = "select pid from pg_stat_activity where application_name = $1";
    let connections = async || client.query(connections, &[&token.to_string()]).await.unwrap();

    // Without a schema, every call fails.
    let pruning = Pruning::default().with_idle(Duration::from_millis(20)).with_busy(Duration::from_millis(5));
    let (counted, calls) = Counted::to(own.options().connect().await.unwrap());
    let pruner = continuously_prune(counted, pruning);
    calls.next().await;

    let store = place.store().await;
    expired(&store, &client, "record").await;
    until_gone(&client, "record").await;

    for row in connections().await {
        place.kill(row.get(0)).await;
    }
    expired(&store, &client, "record").await;
    until_gone(&client, "record").await;

    timeout(PATIENCE, pruner.stop()).await.expect("it ends when told to");
    assert!(calls.are_over());
    expired(&store, &client, "record").await;
    assert_eq!(names(&client).await, ["record"]);
}
