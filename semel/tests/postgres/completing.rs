//! The contract of every store, on Postgres with outcomes that are recorded in transactions of the
//! caller: there SQL says what a completion comes to, as `decide::unapplied` does everywhere else.

use std::time::Duration;

use async_trait::async_trait;
use semel::admin::{Inspect, ListQuery, OperatorAck, Page, Prune, Stats};
use semel::store::{Ack, Ask, Claim, Found, Record, Token, Void};
use semel::{Fence, Key, Lease, Outcome, PostgresStore, Store, StoreError, Timestamp};
use testkit::contract::keeps_every_promise;
use testkit::stores::postgres::Place;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// A store whose completions are transactions of the caller.
struct InTransactions {
    store: PostgresStore,
    client: Mutex<Client>,
}

impl InTransactions {
    async fn at(place: &Place) -> Self {
        Self { store: place.store().await, client: Mutex::new(place.client().await) }
    }
}

#[async_trait]
impl Store for InTransactions {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    fn completes_in_transactions(&self) -> bool {
        self.store.completes_in_transactions()
    }

    fn needs_pruning(&self) -> bool {
        self.store.needs_pruning()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError> {
        self.store.claim(ask).await
    }

    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError> {
        self.store.renew(lease, length).await
    }

    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError> {
        let mut client = self.client.lock().await;
        let mut tx = client.transaction().await.expect("a transaction begins");
        let ack = self.store.complete_in(&mut tx, lease, outcome).await?;
        tx.commit().await.expect("it is committed");
        Ok(ack)
    }

    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError> {
        self.store.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        self.store.abandon(lease, reason).await
    }

    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        self.store.hold(lease, reason).await
    }

    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError> {
        self.store.void(key, token, not_after).await
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.find(key).await
    }

    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        self.store.find_many(keys).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        self.store.prune(prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.store.keep_secret(expected, value).await
    }
}

#[async_trait]
impl Inspect for InTransactions {
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.store.stale(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }

    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError> {
        self.store.resolve(key, seen, outcome, reason).await
    }

    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        self.store.reset(key, seen, reason).await
    }

    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        self.store.forget(key, seen, reason).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_in_transactions_keeps_every_promise() {
    let place = Place::shared();
    keeps_every_promise(InTransactions::at(&place).await, InTransactions::at(&place).await).await;
}
