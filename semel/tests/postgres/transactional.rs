//! The engine with handlers that commit their outcome themselves.

use std::sync::Arc;

use semel::store::MemoryCache;
use semel::{
    Failure, Intent, Key, Lease, Once, Outcome, Policy, PostgresStore, Ran, RunError, Store, Tiered,
};
use testkit::gates::Counted;
use testkit::stores::postgres::{Place, pid, taken_over};
use tokio_postgres::Client;

/// An engine, and a table for effects.
struct Shop {
    place: Place,
    store: PostgresStore,
    once: Once,
    client: Client,
    key: Key,
    intent: Intent,
}

impl Shop {
    async fn open() -> Arc<Self> {
        let place = Place::shared();
        let store = place.store().await;
        let client = place.client().await;
        client.batch_execute("create table effects (key text)").await.unwrap();
        Arc::new(Self {
            once: Once::new(store.clone()).with_policy(Policy::transactional()),
            key: Key::new("tests", "engine").unwrap(),
            intent: Intent::of("charge", "", &1).unwrap(),
            place,
            store,
            client,
        })
    }

    async fn effects(&self) -> i64 {
        self.client.query_one("select count(*) from effects", &[]).await.unwrap().get(0)
    }

    /// Books once, with the number as the value.
    async fn run(self: &Arc<Self>, number: u32, fate: Fate) -> Result<Ran<u32>, RunError> {
        let shop = Arc::clone(self);
        self.once
            .run(&self.key, &self.intent, move |lease| async move { shop.book(lease, number, fate).await })
            .await
    }

    async fn book(&self, lease: Lease, number: u32, fate: Fate) -> Result<u32, Failure> {
        let mut client = self.place.client().await;
        let pid = pid(&client).await;
        let mut tx = client.transaction().await?;
        tx.execute("insert into effects values ('engine')", &[]).await?;
        if fate == Fate::TakenOver {
            let _winner = taken_over(&self.client, &self.store, lease.key()).await;
        }
        if fate == Fate::Forgetful {
            tx.commit().await?;
            return Ok(number);
        }
        self.store.complete_in(&mut tx, &lease, &Outcome::json(&number)?).await?.applied()?;
        if fate == Fate::Killed {
            self.place.kill(pid).await;
        }
        tx.commit().await?;
        if fate == Fate::UnheardOf {
            // The answer to the commit was lost, as far as this handler knows.
            return Err(Failure::unknown("the connection is gone"));
        }
        Ok(number)
    }
}

/// The fate of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    Killed,
    UnheardOf,
    TakenOver,
    Forgetful,
}

#[tokio::test]
async fn the_run_returns_the_outcome_that_the_handler_commits() {
    let shop = Shop::open().await;
    assert_eq!(shop.run(7, Fate::Well).await.unwrap(), Ran::new(7, false));
    assert_eq!(shop.run(8, Fate::Well).await.unwrap(), Ran::new(7, true));
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn a_transaction_that_was_lost_is_taken_over_and_committed_once() {
    let shop = Shop::open().await;
    let failed = shop.run(7, Fate::Killed).await;
    assert!(matches!(failed, Err(RunError::Failed { nothing_happened: false, .. })), "{failed:?}");
    assert_eq!(shop.effects().await, 0);
    assert_eq!(shop.run(8, Fate::Well).await.unwrap(), Ran::new(8, false));
    assert_eq!(shop.run(9, Fate::Well).await.unwrap(), Ran::new(8, true));
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn a_commit_that_was_not_heard_of_is_found_and_not_repeated() {
    let shop = Shop::open().await;
    assert_eq!(shop.run(7, Fate::UnheardOf).await.unwrap(), Ran::new(7, false));
    assert_eq!(shop.run(8, Fate::Well).await.unwrap(), Ran::new(7, true));
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn a_handler_that_lost_its_lease_leaves_no_effect() {
    let shop = Shop::open().await;
    let superseded = shop.run(7, Fate::TakenOver).await;
    assert!(matches!(superseded, Err(RunError::Superseded)), "{superseded:?}");
    assert_eq!(shop.effects().await, 0);
}

#[tokio::test]
async fn an_effect_without_its_outcome_holds_the_key_and_is_not_repeated() {
    let shop = Shop::open().await;
    let forgot = shop.run(7, Fate::Forgetful).await;
    assert!(matches!(forgot, Err(RunError::CompletionMissing)), "{forgot:?}");
    let note = shop.store.find(&shop.key).await.unwrap().unwrap().note.unwrap();
    assert_eq!(&*note.text, "held: the handler succeeded without recording its outcome in its transaction");
    for fate in [Fate::Forgetful, Fate::Well] {
        let held = shop.run(8, fate).await;
        assert!(matches!(held, Err(RunError::Held(_))), "{held:?}");
    }
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn an_outcome_whose_transaction_is_still_open_is_waited_for() {
    let shop = Shop::open().await;
    let (counted, calls) = Counted::to(shop.store.clone());
    let (at, once) = (Arc::clone(&shop), Once::new(counted).with_policy(Policy::transactional()));
    let leaves_it_open = move |lease: Lease| async move {
        let mut client = at.place.client().await;
        let (locked, is_locked) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut tx = client.transaction().await.unwrap();
            let completed = at.store.complete_in(&mut tx, &lease, &Outcome::json(&7).unwrap()).await;
            completed.unwrap().applied().unwrap();
            locked.send(()).unwrap();
            // The engine looks for the outcome, and does not find it.
            calls.next().await;
            tx.commit().await.unwrap();
        });
        is_locked.await?;
        Ok(7)
    };
    let ran = once.run(&shop.key, &shop.intent, leaves_it_open).await.unwrap();
    assert_eq!(ran, Ran::new(7, false));
}

#[tokio::test]
async fn transactional_is_for_postgres_alone_and_behind_a_cache() {
    let shop = Shop::open().await;
    let shared: Arc<dyn Store> = Arc::new(shop.store.clone());
    let tiered = Tiered::new(MemoryCache::new(1 << 20), Arc::clone(&shared));
    for once in [Once::new(shared), Once::new(tiered)] {
        assert!(once.try_with_policy(Policy::transactional()).is_ok());
    }
}
