//! The overdraft: one response at a time may exceed the share.
//!
//! A response that exceeds the share returns the overdraft as soon as there is room for it within
//! the share, and not only when its client has taken it: a slow client does not keep the next
//! response waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// The single permit, and its present use.
pub(super) struct Overdraft {
    permit: Semaphore,
    /// The loan of the response that exceeds the share.
    lent: Mutex<Option<Arc<Loan>>>,
}

/// The part of a response that exceeds the share, once its size is known.
pub(super) struct Loan {
    steps: u32,
    /// Set once that many steps were taken from the share.
    repaid: AtomicBool,
}

impl Overdraft {
    pub(super) fn new() -> Self {
        Self { permit: Semaphore::new(1), lent: Mutex::default() }
    }

    /// Completes when this response may exceed the share.
    pub(super) async fn enter(&self) {
        // The semaphore is never closed.
        self.permit.acquire().await.into_iter().for_each(|permit| permit.forget());
    }

    /// Records by how many steps the response that has entered exceeds the share.
    pub(super) fn lend(&self, steps: u32) -> Arc<Loan> {
        let loan = Arc::new(Loan { steps, repaid: AtomicBool::new(false) });
        *self.lent() = Some(Arc::clone(&loan));
        loan
    }

    /// Moves the response that exceeds the share into it, if there is room now.
    pub(super) fn repay(&self, share: &Semaphore) {
        if self.permit.available_permits() > 0 {
            return;
        }
        let mut lent = self.lent();
        let Some(loan) = &*lent else { return };
        if let Ok(steps) = share.try_acquire_many(loan.steps) {
            steps.forget();
            loan.repaid.store(true, Ordering::Relaxed);
            *lent = None;
            self.permit.add_permits(1);
        }
    }

    /// Ends the use by a response: returns the overdraft if the response still has it, otherwise
    /// the number of steps that it has of the share instead.
    pub(super) fn leave(&self, loan: Option<&Loan>) -> usize {
        let mut lent = self.lent();
        if let Some(loan) = loan.filter(|loan| loan.repaid.load(Ordering::Relaxed)) {
            return loan.steps as usize;
        }
        *lent = None;
        self.permit.add_permits(1);
        0
    }

    /// Returns `true` if no response exceeds the share.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.permit.available_permits() == 1
    }

    fn lent(&self) -> MutexGuard<'_, Option<Arc<Loan>>> {
        self.lent.lock()
    }
}
