//! Running the work under a lease.

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
    /// Runs the work and settles it, on a task of its own: nothing depends on the caller any more.
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

    /// Runs the work and settles it. The permit is held until the caller is told: its response may
    /// be a stream that goes on. Settling in the background needs none, and has no such stream.
    pub(super) async fn attempt(
        &self,
        lease: &mut Lease,
        intent: &Intent,
        copies: &Copies,
        work: Work,
        permit: Permit,
    ) -> Result<Ran<Outcome>, RunError> {
        let length = || self.engine.policy.terms().lease();
        let is_late = |heard: Instant| heard.elapsed() > length() / 3;
        let mut heard = copies.sent;
        if is_late(heard) {
            heard = match Box::pin(self.make_sure(lease, intent, copies)).await {
                Ok(confirmed) => confirmed,
                Err(ended) => return *ended,
            };
        }
        let (store, alive) = (&self.engine.store, &self.engine.alive);
        let mut renewal = Some(Renewal::begin(store, lease, length(), heard, alive).await);
        // Others may have had their turn meanwhile, and taken their time.
        if is_late(heard)
            && let Err(ended) = Box::pin(self.make_sure(lease, intent, copies)).await
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

    /// Makes sure that a lease that took long to get is still ours, and says from when on it is;
    /// else says how the run ends, without having started the work.
    async fn make_sure(
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

    /// When the renewal was sent by which a lease that took long to get is still ours; `None` if it
    /// is not. It may be over, and a hook may have found out for another process that nothing
    /// happened, which is true until the work starts.
    ///
    /// Only a renewal that was applied, and answered within the lease that it began, confirms
    /// anything. One that met a locked row is sent again for as long as the patience lasts: the
    /// lock may be a takeover in its commit.
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
            if !patience.lasts(&unconfirmed).await {
                return Err(unconfirmed);
            }
        }
    }

    /// Records what was found out about a lost attempt.
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

/// What to tell about work that panicked.
fn describe(panic: &(dyn Any + Send)) -> String {
    let message =
        panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", message.unwrap_or("no message"))
}
