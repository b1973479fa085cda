//! The run of the work under its lease.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::admission::Permit;
use super::claim::Copies;
use super::error::{Failure, RunError};
use super::patience::{Patience, call};
use super::renew::Renewal;
use super::{Once, Ran, Work, Worked};
use crate::protocol::answer::Ack;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::terms::AfterCrash;

impl Once {
    /// Starts the attempt on a task of its own: it continues if the caller drops its future.
    pub(super) fn start(
        &self,
        mut lease: Lease,
        intent: &Intent,
        copies: &Copies,
        work: Work,
        permit: Permit,
    ) -> JoinHandle<Result<Ran<Outcome>, RunError>> {
        let (once, intent, copies) = (self.clone(), intent.clone(), *copies);
        self.engine.tasks.spawn(async move { once.attempt(&mut lease, &intent, &copies, work, permit).await })
    }

    /// Runs the work and settles it. The permit is held until the caller has its answer, which may
    /// be a stream that continues. Settling in the background needs no permit.
    pub(super) async fn attempt(
        &self,
        lease: &mut Lease,
        intent: &Intent,
        copies: &Copies,
        work: Work,
        permit: Permit,
    ) -> Result<Ran<Outcome>, RunError> {
        let length = || self.engine.policy.terms().lease();
        let is_late = |since: Instant| since.elapsed() > length() / 3;
        let mut since = copies.sent;
        if is_late(since) {
            since = match Box::pin(self.confirm_or_end(lease, intent, copies)).await {
                Ok(confirmed) => confirmed,
                Err(ended) => return *ended,
            };
        }
        let (store, attempts) = (&self.engine.store, &self.engine.alive);
        let mut renewal = Some(Renewal::begin(store, lease, length(), since, attempts).await);
        // Beginning the renewals may yield to tasks that run for long.
        if is_late(since)
            && let Err(ended) = Box::pin(self.confirm_or_end(lease, intent, copies)).await
        {
            return *ended;
        }
        let _until_told = permit;
        let Worked { result, held } = self.work(lease.clone(), work).await;
        if result.is_ok() && self.engine.policy.after_crash() == AfterCrash::Transactional {
            return Box::pin(self.settle_recorded(lease, intent, copies, &mut renewal)).await;
        }
        self.settle(lease, intent, copies, &mut renewal, result, held).await
    }

    /// Does the work, and times it. A panic of the work is its own, and says nothing about what is
    /// recorded of it.
    async fn work(&self, lease: Lease, work: Work) -> Worked {
        let began = Instant::now();
        let worked = AssertUnwindSafe(async move { work(lease).await }).catch_unwind().await;
        self.engine.meter.work(began.elapsed());
        worked.unwrap_or_else(|panic| Err(Failure::unknown(describe(&*panic))).into())
    }

    /// Confirms a lease that was granted slowly. Returns a moment no later than the beginning of
    /// the confirmed lease; or the result of the run, which ends without starting the work.
    async fn confirm_or_end(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: &Copies,
    ) -> Result<Instant, Box<Result<Ran<Outcome>, RunError>>> {
        match self.confirm(lease).await {
            Ok(Some(confirmed)) => Ok(confirmed),
            Ok(None) => {
                self.engine.admission.ended(lease.key(), true);
                self.void_later(lease.key(), copies);
                Err(Box::new(self.winner(lease, intent).await))
            }
            Err(error) => {
                self.release_later(lease, copies);
                Err(Box::new(Err(RunError::Unavailable(error))))
            }
        }
    }

    /// Renews a lease that was granted slowly, before its work starts. Returns the moment at which
    /// the renewal was sent; `None` if the lease is lost.
    ///
    /// The lease may be over already, and a reconcile hook may have told another process that
    /// nothing happened, which is true as long as the work has not started.
    ///
    /// Only a renewal that was applied, and was answered before the renewed lease was over,
    /// confirms the lease. A renewal that finds the row locked is retried until the patience is
    /// over, because the lock may belong to a takeover that is being committed.
    async fn confirm(&self, lease: &Lease) -> Result<Option<Instant>, StoreError> {
        let length = self.engine.policy.terms().lease();
        let mut patience = Patience::since(Instant::now(), self.engine.policy.patience(), lease.key());
        loop {
            let asked = Instant::now();
            let unconfirmed = match call(self.engine.store.renew(lease, length)).await {
                Ok(Ack::Applied) if asked.elapsed() < length => return Ok(Some(asked)),
                Ok(Ack::Applied) => StoreError::unavailable("the lease was confirmed too late"),
                Ok(Ack::Repeated) => StoreError::unavailable("the record is locked by an open transaction"),
                Ok(Ack::Finished | Ack::Superseded | Ack::Missing) => return Ok(None),
                Err(error) => error,
            };
            if !patience.pause_after(&unconfirmed).await {
                return Err(unconfirmed);
            }
        }
    }

    /// Records the outcome of a lost attempt that a reconcile hook reported.
    pub(super) async fn record(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: &Copies,
        outcome: Outcome,
    ) -> Result<Ran<Outcome>, RunError> {
        let recorded = self.settle(lease, intent, copies, &mut None, Ok(outcome), None).await?;
        Ok(Ran { replayed: true, ..recorded })
    }
}

/// The text of the failure of work that panicked.
fn describe(panic: &(dyn Any + Send)) -> String {
    let message =
        panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", message.unwrap_or("no message"))
}
