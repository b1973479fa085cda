//! The renewals of one lease, and the alarm of its loss.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::patience::{CALL_LIMIT, call};
use crate::fault;
use crate::observe;
use crate::protocol::answer::Ack;
use crate::store::Store;
use crate::words::error::StoreError;
use crate::words::lease::{Alarm, Lease};

/// The renewals of one lease, which run on a task of their own.
pub(super) struct Renewer {
    pub(super) store: Arc<dyn Store>,
    pub(super) lease: Lease,
    pub(super) length: Duration,
    /// The lease began at this moment or later.
    pub(super) since: Instant,
    pub(super) alarm: Arc<Alarm>,
}

impl Renewer {
    /// Renews the lease until it is stopped, or until there is nothing left to renew.
    pub(super) async fn run(self: Box<Self>, stop: CancellationToken) {
        // The moment at which the last successful renewal was sent: the lease began then or later.
        let since = watch::Sender::new(self.since);
        tokio::select! {
            biased;
            () = self.renew(&since, &stop) => {}
            () = self.watch(since.subscribe()) => {}
        }
    }

    /// Renews the lease three times in its length. A failed renewal is retried early, so one lost
    /// message does not cost the lease.
    async fn renew(&self, since: &watch::Sender<Instant>, stop: &CancellationToken) {
        let mut next = self.since + self.length / 3;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(next) => {}
            }
            let sent = Instant::now();
            next = match timeout((self.length / 6).min(CALL_LIMIT), self.renew_once()).await {
                Ok(Ok(true)) => {
                    since.send_replace(sent);
                    sent + self.length / 3
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::debug!(%error, key = ?self.lease.key(), "could not renew the lease");
                    Instant::now() + self.length / 30
                }
                Err(_) => {
                    tracing::debug!(key = ?self.lease.key(), "a renewal was not answered");
                    Instant::now() + self.length / 30
                }
            };
        }
    }

    /// Sends one renewal. Returns `true` if the lease is still this attempt's, and `false` if there
    /// is nothing left to renew.
    async fn renew_once(&self) -> Result<bool, StoreError> {
        fault::reach("before_renew");
        match self.store.renew(&self.lease, self.length).await? {
            Ack::Applied | Ack::Repeated => Ok(true),
            Ack::Finished if self.recorded_by_the_work().await? => Ok(false),
            Ack::Finished | Ack::Superseded | Ack::Missing => {
                self.raise("another attempt has the key");
                Ok(false)
            }
        }
    }

    /// Returns `true` if this attempt has recorded the outcome, in a transaction of its work.
    async fn recorded_by_the_work(&self) -> Result<bool, StoreError> {
        let found = call(self.store.find(self.lease.key())).await?;
        Ok(found.is_some_and(|record| record.token == self.lease.token()))
    }

    /// Raises the alarm when no renewal has succeeded for the length of the lease. The renewals
    /// continue: unless another attempt takes over, a later one still succeeds.
    async fn watch(&self, mut since: watch::Receiver<Instant>) {
        loop {
            let over = *since.borrow_and_update() + self.length;
            let renewed = tokio::select! {
                biased;
                renewed = since.changed() => renewed,
                () = sleep_until(over) => {
                    self.raise("no renewal got through for a whole lease");
                    since.changed().await
                }
            };
            if renewed.is_err() {
                return;
            }
        }
    }

    fn raise(&self, why: &str) {
        if self.alarm.raise() {
            observe::lease_lost(self.store.name());
            tracing::warn!(key = ?self.lease.key(), fence = %self.lease.fence(), "lost a lease: {why}");
        }
    }
}
