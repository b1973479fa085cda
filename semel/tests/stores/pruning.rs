//! Pruning beside concurrent load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Prune, Pruning, continuously_prune};
use semel::store::{Ack, Claim, Terms};
use semel::{Fence, Outcome, Store, Timestamp};
use testkit::claims::{ask, granted, retried};
use testkit::gates::Counted;
use testkit::on_every_store;
use testkit::stores::Place;
use testkit::until::{LONG, until};
use tokio::task::JoinSet;
use tokio::time::timeout;

on_every_store! {
    testkit::stores::Place [sqlite, postgres] {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        many_pruners_remove_each_expired_record_once_and_nothing_else,
        only_the_realm_that_was_named_is_pruned_and_no_more_than_asked_for,
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        a_key_that_is_pruned_and_claimed_at_once_has_one_owner_at_a_time,
        a_record_that_is_renewed_is_not_pruned,
        pruning_in_the_background_goes_on_after_failures_until_it_is_stopped,
    }
}

/// Makes this many copies of each record, with keys of their own.
async fn multiply(place: &Place, copies: usize) {
    let statements = match place {
        Place::Sqlite(_) => format!(
            "create temp table copies as
            with recursive n (n) as (values (1) union all select n + 1 from n where n < {copies})
            select {{records}}.*, n from {{records}}, n;
            update copies set key = key || ' ' || n, id = randomblob(32);
            alter table copies drop column n;
            insert into {{records}} select * from copies;
            drop table copies"
        ),
        _ => format!(
            "insert into {{records}}
            select (jsonb_populate_record(record, jsonb_build_object(
                'key', record.key || ' ' || n, 'id', sha256(convert_to(record.key || n, 'UTF8')))
            )).*
            from {{records}} as record, generate_series(1, {copies}) as n"
        ),
    };
    place.execute(&statements).await;
}

/// Records of every kind; the names of expired ones contain that word.
async fn all_kinds(place: &Place) {
    let store = place.store().await;
    let outcome = Outcome::new(200).unwrap().with_body(vec![7; 200]).unwrap();
    for name in
        ["running", "held", "lost", "lost expired", "released", "released expired", "done", "done expired"]
    {
        let asked = ask(&store, name).await;
        let lease = granted(&store, &if name == "held" { asked } else { retried(asked) }).await;
        match name.split(' ').next() {
            Some("held" | "lost") => place.end_lease(name).await,
            Some("released") => store.release(&lease).await.unwrap().applied().unwrap(),
            Some("done") => store.complete(&lease, &outcome).await.unwrap().applied().unwrap(),
            _ => {}
        }
        if name.contains("expired") || ["running", "held"].contains(&name) {
            place.expire(name).await;
        }
    }
}

async fn many_pruners_remove_each_expired_record_once_and_nothing_else(place: Place) {
    // The copies are enough for several transactions of each kind.
    const COPIES: usize = 1_500;
    all_kinds(&place).await;
    multiply(&place, COPIES).await;
    if let Place::Postgres(_) = place {
        // One sweep reads 256 pages.
        let pages = place.texts("select pg_relation_size('{records}') / 8192").await;
        assert!(pages[0].parse::<u32>().unwrap() > 512, "{pages:?}");
    }

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
    let left = place.names().await;
    assert_eq!(left.len(), 5 * (COPIES + 1));
    assert!(left.iter().all(|name| !name.contains("expired")));
}

async fn only_the_realm_that_was_named_is_pruned_and_no_more_than_asked_for(place: Place) {
    all_kinds(&place).await;
    multiply(&place, 1_000).await;
    place.execute("update {records} set realm = 'other' where key like 'done%'").await;
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
    assert_eq!(place.names().await.len(), 5 * 1_001);
}

/// A grant, by the fence, which contains the store's clock.
struct Grant {
    fence: Fence,
    deadline: Timestamp,
}

async fn a_key_that_is_pruned_and_claimed_at_once_has_one_owner_at_a_time(place: Place) {
    const KEYS: usize = 8;
    const GRANTS: usize = 8;
    let stores = place.two_stores().await;
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
                let lease = match store.claim(&ask).await {
                    Ok(Claim::Granted(lease)) => lease,
                    Ok(_) => continue,
                    Err(error) if error.is_transient() => continue,
                    Err(error) => panic!("{error}"),
                };
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

async fn a_record_that_is_renewed_is_not_pruned(place: Place) {
    let store = place.store().await;
    let lease = granted(&store, &retried(ask(&store, "renewed").await)).await;
    place.end_lease("renewed").await;
    place.expire("renewed").await;
    assert_eq!(store.renew(&lease, Duration::from_secs(60)).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    assert_eq!(store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap(), Ack::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
}

async fn pruning_in_the_background_goes_on_after_failures_until_it_is_stopped(place: Place) {
    // Without a schema, every call fails.
    let pruning = Pruning::default().with_idle(Duration::from_millis(20)).with_busy(Duration::from_millis(5));
    let (counted, calls) = Counted::to(place.opened().await);
    let pruner = continuously_prune(counted, pruning);
    calls.next().await;

    let store = place.store().await;
    let expired = async || {
        granted(&store, &retried(ask(&store, "record").await)).await;
        place.expire("record").await;
        place.end_lease("record").await;
    };
    expired().await;
    until("it is pruned", async || place.names().await.is_empty()).await;
    timeout(LONG, pruner.stop()).await.expect("it ends when told to");
    assert!(calls.are_over());
    expired().await;
    assert_eq!(place.names().await, ["record"]);
}
