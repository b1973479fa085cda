//! Races for keys, between tasks and between processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel::admin::Inspect;
use semel::store::{Ack, Claim, Phase, RecordState, Takeover, Terms};
use semel::{Lease, Outcome, Store};
use testkit::claims::{ask, granted, retried};
use testkit::on_every_store;
use testkit::stores::Place;
use testkit::until::until;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

on_every_store! {
    one_of_many_gets_a_new_key,
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all,
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    each_of_many_keys_is_run_once_and_replayed_to_all,
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    one_of_many_outcomes_of_an_owner_is_recorded,
}

const TASKS: usize = 64;

type AnyStore = Arc<dyn Inspect>;

/// Runs the tasks, half on each store, from the same moment on.
async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &[AnyStore],
    run: impl Fn(usize, AnyStore) -> F,
) -> Vec<T> {
    let start = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let (start, task) = (Arc::clone(&start), run(number, stores[number % stores.len()].clone()));
        tasks.spawn(async move {
            start.wait().await;
            task.await
        });
    }
    tasks.join_all().await
}

fn by(number: usize) -> Outcome {
    Outcome::json(&number).unwrap()
}

fn one(claims: impl IntoIterator<Item = Claim>) -> Lease {
    let mut leases = Vec::new();
    for claim in claims {
        match claim {
            Claim::Granted(lease) => leases.push(lease),
            Claim::Running { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases.remove(0)
}

/// On one thread, all claims of a store are queued before the first is sent, so that one batch
/// holds many of one key.
async fn one_of_many_gets_a_new_key(place: Place) {
    let stores = place.two_stores().await;
    for round in 0..8 {
        let name = format!("key-{round}");
        let claims = race(&stores, |_, store| {
            let name = name.clone();
            async move { store.claim(&ask(&store, &name).await).await.unwrap() }
        });
        let lease = one(claims.await);
        assert_eq!(stores[0].find(lease.key()).await.unwrap().unwrap().token, lease.token());
    }
}

async fn one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all(place: Place) {
    let stores = place.two_stores().await;
    for round in 0..4 {
        let asked = ask(&stores[0], &format!("key-{round}")).await;
        let terms = Terms::new(Terms::MIN_LEASE, Terms::DEFAULT.retention()).unwrap();
        let lost = granted(&stores[0], &retried(asked.with_terms(terms))).await;
        until("the lease is over", async || {
            let record = stores[0].find(lost.key()).await.unwrap().unwrap();
            record.phase(stores[0].now().await.unwrap()) == Phase::Lost
        })
        .await;
        let ended = race(&stores, |number, store| {
            let lost = lost.clone();
            async move {
                if number == round * 9 {
                    return Err(store.complete(&lost, &by(number)).await.unwrap());
                }
                let ask = ask(&store, lost.key().value()).await;
                Ok(store.claim(&ask.with_takeover(Takeover::WhenOver)).await.unwrap())
            }
        });
        let (mut claims, mut ack) = (Vec::new(), None);
        for end in ended.await {
            match end {
                Ok(claim) => claims.push(claim),
                Err(said) => ack = Some(said),
            }
        }
        if ack == Some(Ack::Applied) {
            let fits = |claim: &Claim| matches!(claim, Claim::Done(_) | Claim::Running { .. });
            assert!(claims.iter().all(fits), "{claims:?}");
        } else {
            assert_eq!(ack, Some(Ack::Superseded));
            let winner = one(claims);
            assert!(winner.fence() > lost.fence() && winner.attempt() == 2);
        }
    }
}

async fn each_of_many_keys_is_run_once_and_replayed_to_all(place: Place) {
    let stores = place.two_stores().await;
    const KEYS: usize = 48;
    let runs = race(&stores, |number, store| async move {
        let mut ran = Vec::new();
        for step in 0..KEYS {
            // Half of the tasks go round in the other direction, so that batches meet in every
            // order.
            let key = if number % 2 == 0 { step } else { KEYS - 1 - step };
            let claim = store.claim(&ask(&store, &format!("key-{key}")).await).await.unwrap();
            match claim {
                Claim::Granted(lease) => {
                    assert_eq!(store.complete(&lease, &by(number)).await.unwrap(), Ack::Applied);
                    ran.push((key, number));
                }
                Claim::Running { .. } | Claim::Done(_) => {}
                other => panic!("{other:?}"),
            }
        }
        ran
    });
    let mut winners = BTreeMap::new();
    for (key, number) in runs.await.into_iter().flatten() {
        assert_eq!(winners.insert(key, number), None, "key-{key} was granted twice");
    }
    assert_eq!(winners.len(), KEYS);
    let winners = Arc::new(winners);
    race(&stores, |_, store| {
        let winners = Arc::clone(&winners);
        async move {
            for (key, winner) in &*winners {
                let claim = store.claim(&ask(&store, &format!("key-{key}")).await).await.unwrap();
                assert!(matches!(claim, Claim::Done(done) if done.outcome == by(*winner)));
            }
        }
    })
    .await;
}

async fn one_of_many_outcomes_of_an_owner_is_recorded(place: Place) {
    let stores = place.two_stores().await;
    let lease = granted(&stores[0], &ask(&stores[0], "key").await).await;
    let acks = race(&stores, |number, store| {
        let lease = lease.clone();
        async move {
            loop {
                // While another process has the record locked, the answer may be a transient error.
                match store.complete(&lease, &by(number)).await {
                    Ok(ack) => return (number, ack),
                    Err(error) => assert!(error.is_transient() && !error.is_unknown(), "{error}"),
                }
            }
        }
    });
    let acks = acks.await;
    let applied: Vec<_> = acks.iter().filter(|(_, ack)| *ack == Ack::Applied).collect();
    assert_eq!(applied.len(), 1, "{acks:?}");
    assert_eq!(acks.iter().filter(|(_, ack)| *ack == Ack::Finished).count(), TASKS - 1, "{acks:?}");
    let RecordState::Done { outcome, .. } = stores[1].find(lease.key()).await.unwrap().unwrap().state else {
        panic!("it was recorded");
    };
    assert_eq!(outcome, by(applied[0].0));
}
