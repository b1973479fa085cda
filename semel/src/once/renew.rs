//! Keeping a lease alive while the work runs.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::answer::Ack;
use crate::lease::Lease;
use crate::store::Store;
use crate::terms::Terms;

/// Renews three times a lease, on a task of its own, until the work is settled. Raises the alarm when the lease
/// can no longer be counted upon; the work decides what to do about it.
pub(super) async fn keep(store: Arc<dyn Store>, lease: Lease, terms: Terms, alarm: watch::Sender<bool>) {
    let third = terms.lease() / 3;
    let started = Instant::now();
    let mut heard = started;
    while started.elapsed() < terms.retention() {
        sleep(third).await;
        let asked = Instant::now();
        match timeout(third, store.renew(&lease, terms.lease())).await {
            Ok(Ok(Ack::Applied | Ack::Repeated)) => heard = asked,
            // The work has recorded its outcome itself, or a winner has: settling finds out which.
            Ok(Ok(Ack::Finished)) => return,
            Ok(Ok(Ack::Superseded | Ack::Missing)) => {
                tracing::warn!(key = ?lease.key(), fence = %lease.fence(), "lost the lease to another attempt");
                alarm.send_replace(true);
                return;
            }
            Ok(Err(error)) => tracing::debug!(%error, key = ?lease.key(), "could not renew the lease"),
            Err(_) => tracing::debug!(key = ?lease.key(), "a renewal was not answered"),
        }
        if heard.elapsed() >= terms.lease() && !alarm.send_replace(true) {
            tracing::warn!(key = ?lease.key(), fence = %lease.fence(), "no renewal got through for a whole lease");
        }
    }
    tracing::warn!(key = ?lease.key(), "the work outlived its retention; its lease is renewed no more");
}
