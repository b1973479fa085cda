//! A store behind a path that tests can disturb.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use semel::admin::Prune;
use semel::store::{Ack, Ask, Claim, Found, Record, Token, Void};
use semel::{Key, Lease, Outcome, Store, StoreError, Timestamp};

/// The path of a call to the store, and of the answer back.
pub trait Path: Send + Sync + 'static {
    /// What is at its end.
    type End: Store + Clone;

    /// Makes the call once, twice or not at all, and answers. The verb's name is for paths that
    /// disturb only some verbs.
    fn pass<T, F>(
        &self,
        verb: &'static str,
        call: impl Fn(Self::End) -> F + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static;
}

/// A store at the end of a path.
pub struct Through<P>(
    /// The path.
    pub P,
);

#[async_trait]
impl<P: Path> Store for Through<P> {
    fn name(&self) -> &'static str {
        "through"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.0.pass("now", |store| async move { store.now().await }).await
    }

    /// In tests a handler completes in the store itself, which is effect and outcome in one step.
    fn completes_in_transactions(&self) -> bool {
        true
    }

    fn needs_pruning(&self) -> bool {
        true
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError> {
        let ask = ask.clone();
        self.0
            .pass("claim", move |store| {
                let ask = ask.clone();
                async move { store.claim(&ask).await }
            })
            .await
    }

    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError> {
        let lease = lease.clone();
        self.0
            .pass("renew", move |store| {
                let lease = lease.clone();
                async move { store.renew(&lease, length).await }
            })
            .await
    }

    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError> {
        let sent = (lease.clone(), outcome.clone());
        self.0
            .pass("complete", move |store| {
                let (lease, outcome) = sent.clone();
                async move { store.complete(&lease, &outcome).await }
            })
            .await
    }

    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError> {
        let lease = lease.clone();
        self.0
            .pass("release", move |store| {
                let lease = lease.clone();
                async move { store.release(&lease).await }
            })
            .await
    }

    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        let sent = (lease.clone(), reason.to_owned());
        self.0
            .pass("abandon", move |store| {
                let (lease, reason) = sent.clone();
                async move { store.abandon(&lease, &reason).await }
            })
            .await
    }

    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        let sent = (lease.clone(), reason.to_owned());
        self.0
            .pass("hold", move |store| {
                let (lease, reason) = sent.clone();
                async move { store.hold(&lease, &reason).await }
            })
            .await
    }

    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError> {
        let key = key.clone();
        self.0
            .pass("void", move |store| {
                let key = key.clone();
                async move { store.void(&key, token, not_after).await }
            })
            .await
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.0
            .pass("find", move |store| {
                let key = key.clone();
                async move { store.find(&key).await }
            })
            .await
    }

    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        let keys = keys.to_vec();
        self.0
            .pass("find_many", move |store| {
                let keys = keys.clone();
                async move { store.find_many(&keys).await }
            })
            .await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let prune = prune.clone();
        self.0
            .pass("prune", move |store| {
                let prune = prune.clone();
                async move { store.prune(&prune).await }
            })
            .await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let sent = (expected.map(<[u8]>::to_vec), value.to_vec());
        self.0
            .pass("keep_secret", move |store| {
                let (expected, value) = sent.clone();
                async move { store.keep_secret(expected.as_deref(), &value).await }
            })
            .await
    }
}
