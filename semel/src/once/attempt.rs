//! Running the work under a lease.

use std::future::Future;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::claim::Copies;
use super::error::{Failure, RunError};
use super::patience::{Patience, call};
use super::renew::Renewal;
use super::{Once, Ran};
use crate::error::StoreError;
use crate::intent::Intent;
use crate::lease::Lease;
use crate::meter;
use crate::outcome::Outcome;

impl Once {
    /// Runs the work on its own task and renews the lease on another, when it is due, until the work is settled.
    pub(super) async fn attempt<W, F>(
        &self,
        lease: Lease,
        intent: &Intent,
        copies: Copies,
        work: W,
    ) -> Result<Ran<Outcome>, RunError>
    where
        W: FnOnce(Lease) -> F + Send + 'static,
        F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let length = self.policy.terms().lease();
        let mut heard = copies.sent;
        if heard.elapsed() > length / 3 {
            heard = Instant::now();
            match self.confirm(&lease).await {
                Ok(true) => {}
                Ok(false) => {
                    self.void_later(lease.key(), copies);
                    return self.winner(&lease, intent).await;
                }
                Err(error) => {
                    self.release_later(&lease, copies);
                    return Err(RunError::Unavailable(error));
                }
            }
        }
        let (lease, mut renewal) = Renewal::of(&self.store, lease, length, heard, &self.alive);
        let (running, began) = (lease.clone(), Instant::now());
        let result = renewal.beside(tokio::spawn(async move { work(running).await })).await;
        meter::work(self.store.name(), began.elapsed());
        let result = result.unwrap_or_else(|error| Err(Failure::unknown(describe(error))));
        self.settle(&lease, intent, copies, Some(renewal), result).await
    }

    /// Whether a lease that took long to get is still ours: it may be over, and somebody else may have found out that
    /// nothing happened, which is true until the work starts.
    async fn confirm(&self, lease: &Lease) -> Result<bool, StoreError> {
        let mut patience = Patience::of(self.policy.patience(), lease.key());
        loop {
            match call(self.store.renew(lease, self.policy.terms().lease())).await {
                Ok(ack) => return Ok(ack.stands()),
                Err(error) if patience.lasts(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Records what was found out about a lost attempt.
    pub(super) async fn record(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: Copies,
        outcome: Outcome,
    ) -> Result<Ran<Outcome>, RunError> {
        let recorded = self.settle(lease, intent, copies, None, Ok(outcome)).await?;
        Ok(Ran { replayed: true, ..recorded })
    }
}

/// What to tell about work whose task ended without a result.
fn describe(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "the work was cut off by a shutdown".into();
    };
    let message =
        panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", message.unwrap_or("no message"))
}
