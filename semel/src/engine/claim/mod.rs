//! The step *claim*: a key is claimed until the claim is granted, or answered otherwise.
//!
//! - `send`: one claim, with its retries.
//! - [`wait`]: the wait for the attempt that runs.
//! - [`reconcile`]: the hook that is asked about lost attempts.
//! - [`voids`]: the bounded list of claims whose answer was lost.

mod send;
pub(super) mod wait;
pub(super) mod reconcile;
pub(super) mod voids;

use tokio::time::Instant;

use self::reconcile::Reconciled;
use self::wait::Waiter;
use super::Once;
use super::admission::look::Answered;
use super::admission::{Admitted, Refused};
use super::drive::Caller;
use super::error::RunError;
use super::run::Attempt;
use crate::fault;
use crate::protocol::answer::Claim;
use crate::protocol::ask::Takeover;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::outcome::Outcome;

pub(super) use self::send::Copies;

/// How often a reconcile hook is asked in one run; each time, another attempt was lost meanwhile.
const MAX_RECONCILES: u32 = 3;

/// The result of the step.
pub(super) enum Claimed {
    /// The key is granted to this attempt, which runs the work.
    Granted(Attempt),
    /// The key is granted to this attempt, which records the outcome of a lost attempt, as the
    /// reconcile hook has reported it.
    Happened(Attempt, Outcome),
    /// The key is done, with this outcome.
    Done(Outcome),
}

/// The end of a wait after which the request is refused: its time is over, there are too many
/// waiters, a shutdown has begun, or the caller has left.
struct WaitEnded;

/// Claims the key; or waits for the attempt that runs, or asks the reconcile hook about a lost
/// one, and claims again.
///
/// The parts that most runs do not need are boxed, which keeps the future of every run small.
pub(super) async fn claim(
    once: &Once,
    key: &Key,
    intent: &Intent,
    caller: &mut Caller,
) -> Result<Claimed, RunError> {
    let until = Instant::now() + once.engine.policy.wait();
    let mut takeover = once.engine.policy.takeover();
    let mut reported = None;
    let mut reconciles_left = MAX_RECONCILES;
    let mut waiter: Option<Box<Waiter>> = None;
    let mut kept: Option<Admitted> = None;
    loop {
        let Answered { claim, copies, right } =
            once.claim_within_limits(key, intent, takeover, kept.take()).await?;
        if !once.goes_on(&claim, key)
            && let Some(waiter) = waiter.take()
        {
            waiter.wake_others();
        }
        match claim {
            Claim::Granted(lease) => {
                let permit = right.map_err(Refused::error)?.granted(&lease);
                drop(waiter);
                fault::reach("granted");
                let attempt = Attempt::new(lease, copies, permit);
                return Ok(match reported {
                    None => Claimed::Granted(attempt),
                    Some(outcome) => Claimed::Happened(attempt, outcome),
                });
            }
            Claim::Done(done) => return Ok(Claimed::Done(done.outcome)),
            Claim::Mismatch(with) => return Err(RunError::Mismatch(with)),
            Claim::Late => {
                let late = StoreError::unavailable("the claim reached the store too late");
                return Err(RunError::Unavailable(late));
            }
            Claim::Running { since, left } => {
                drop(right);
                Box::pin(once.wait(key, until, caller, &mut waiter))
                    .await
                    .map_err(|_| RunError::Pending { since, retry_after: left })?;
                // The report of the hook may be out of date, because an attempt ran meanwhile.
                (takeover, reported) = (once.engine.policy.takeover(), None);
            }
            // Its renewals do not get through, but it lives, so it is not lost.
            Claim::Held(held) if once.engine.alive.has(key, held.fence) => {
                drop(right);
                let retry_after = once.engine.policy.terms().lease();
                Box::pin(once.wait(key, until, caller, &mut waiter))
                    .await
                    .map_err(|_| RunError::Pending { since: held.since, retry_after })?;
                (takeover, reported) = (once.engine.policy.takeover(), None);
            }
            Claim::Held(held) => {
                // A hook is work, too.
                kept = match right {
                    Ok(admitted) => Some(admitted),
                    Err(refused) if once.engine.reconcile.is_some() => return Err(refused.error()),
                    Err(_) => None,
                };
                let report = if reconciles_left > 0 {
                    Box::pin(once.reconcile(key, intent, held)).await
                } else {
                    Reconciled::Unknown
                };
                reported = match report {
                    Reconciled::Happened(outcome) => Some(outcome),
                    Reconciled::DidNotHappen => None,
                    Reconciled::Unknown => return Err(RunError::Held(held)),
                };
                reconciles_left -= 1;
                takeover = Takeover::Of(held.fence);
            }
        }
    }
}

impl Once {
    /// Returns `true` if an attempt runs under this key, so that a wait for it makes sense.
    fn goes_on(&self, claim: &Claim, key: &Key) -> bool {
        match claim {
            Claim::Granted(_) | Claim::Running { .. } => true,
            Claim::Held(held) => self.engine.alive.has(key, held.fence),
            Claim::Done(_) | Claim::Mismatch(_) | Claim::Late => false,
        }
    }

    /// Waits until the running attempt may have ended. The first call enters the caller among the
    /// waiters, and later calls keep its place.
    async fn wait(
        &self,
        key: &Key,
        until: Instant,
        caller: &mut Caller,
        waiter: &mut Option<Box<Waiter>>,
    ) -> Result<(), WaitEnded> {
        if Instant::now() >= until {
            return Err(WaitEnded);
        }
        let waiter = match waiter {
            Some(waiter) => waiter,
            None => waiter.insert(Box::new(self.engine.waiters.enter(key).ok_or(WaitEnded)?)),
        };
        tokio::select! {
            biased;
            () = caller.leaves() => Err(WaitEnded),
            () = self.engine.waits_end.cancelled() => Err(WaitEnded),
            () = waiter.wait(until, &self.engine.store, &self.engine.tasks) => Ok(()),
        }
    }
}
