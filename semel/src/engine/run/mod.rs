//! The step *run*: the work runs under its lease.
//!
//! - [`schedule`]: the leases of all attempts of this process, and when each is renewed first.
//! - `renewer`: the renewals of one lease.

pub(super) mod schedule;
mod renewer;

use std::any::Any;
use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use self::schedule::Renewal;
use super::admission::Permit;
use super::claim::Copies;
use super::error::{Failure, RunError};
use super::patience::{Patience, call};
use super::{Once, Ran};
use crate::protocol::answer::Ack;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

/// The work of one attempt, behind a pointer: it is handed from step to step.
pub(crate) type Work = Box<dyn FnOnce(Lease) -> BoxFuture<'static, Worked> + Send>;

/// The result of the work.
pub(crate) struct Worked {
    pub(crate) result: Result<Outcome, Failure>,
    /// Bytes that are held until the attempt is settled: as long as the store has not taken an
    /// outcome, its memory is in use, and these bytes may carry the charge for it.
    pub(crate) held: Option<Bytes>,
}

impl From<Result<Outcome, Failure>> for Worked {
    fn from(result: Result<Outcome, Failure>) -> Self {
        Self { result, held: None }
    }
}

/// An attempt from its grant to its settlement.
pub(super) struct Attempt {
    pub(super) lease: Lease,
    pub(super) copies: Copies,
    /// The renewals of the lease, from before the work starts until the attempt is settled.
    pub(super) renewal: Option<Renewal>,
    /// Held until the caller has its answer, which may be a stream that continues. Settling in the
    /// background needs no permit.
    _permit: Permit,
}

impl Attempt {
    pub(super) fn new(lease: Lease, copies: Copies, permit: Permit) -> Self {
        Self { lease, copies, renewal: None, _permit: permit }
    }
}

/// Runs the work under a lease that is renewed meanwhile. An error is the result of a run that
/// ends without starting the work, because its lease could not be confirmed.
pub(super) async fn run(
    once: &Once,
    attempt: &mut Attempt,
    intent: &Intent,
    work: Work,
) -> Result<Worked, Box<Result<Ran<Outcome>, RunError>>> {
    let length = || once.engine.policy.terms().lease();
    let is_late = |since: Instant| since.elapsed() > length() / 3;
    let mut since = attempt.copies.sent;
    if is_late(since) {
        since = Box::pin(once.confirm_or_end(attempt, intent)).await?;
    }
    let (store, alive) = (&once.engine.store, &once.engine.alive);
    attempt.renewal = Some(Renewal::begin(store, &mut attempt.lease, length(), since, alive).await);
    // Beginning the renewals may yield to tasks that run for long.
    if is_late(since) {
        Box::pin(once.confirm_or_end(attempt, intent)).await?;
    }
    let began = Instant::now();
    let lease = attempt.lease.clone();
    let worked = AssertUnwindSafe(async move { work(lease).await }).catch_unwind().await;
    once.engine.meter.work(began.elapsed());
    // A panic of the work is its own, and says nothing about what is recorded of it.
    Ok(worked.unwrap_or_else(|panic| Err(Failure::unknown(describe(&*panic))).into()))
}

impl Once {
    /// Confirms a lease that was granted slowly. Returns a moment no later than the beginning of
    /// the confirmed lease; or the result of the run, which ends without starting the work.
    async fn confirm_or_end(
        &self,
        Attempt { lease, copies, .. }: &Attempt,
        intent: &Intent,
    ) -> Result<Instant, Box<Result<Ran<Outcome>, RunError>>> {
        match self.confirm(lease).await {
            Ok(Some(confirmed)) => Ok(confirmed),
            Ok(None) => {
                self.engine.admission.settled(lease.key(), false);
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
}

/// The text of the failure of work that panicked.
fn describe(panic: &(dyn Any + Send)) -> String {
    let message =
        panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", message.unwrap_or("no message"))
}
