//! The overdraft: one response at a time may go over the share.
//!
//! A response that is over the share gives the overdraft back as soon as there is room for it within the share, and not only
//! when its client has taken it: a client that takes its time does not keep the next response waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// What there is of it.
pub(super) struct Overdraft {
    permit: Semaphore,
    /// What the response that is over the share would need of it.
    lent: Mutex<Option<Arc<Loan>>>,
}

/// What a response is over the share, once its size is known.
pub(super) struct Loan {
    steps: u32,
    /// Whether that many steps were taken from the share since.
    repaid: AtomicBool,
}

impl Overdraft {
    pub(super) fn new() -> Self {
        Self { permit: Semaphore::new(1), lent: Mutex::default() }
    }

    /// Comes to its end when this response may go over the share.
    pub(super) async fn enter(&self) {
        // It is never closed.
        self.permit.acquire().await.into_iter().for_each(|permit| permit.forget());
    }

    pub(super) fn try_enter(&self) -> bool {
        self.permit.try_acquire().map(|permit| permit.forget()).is_ok()
    }

    /// Says by how many steps the response is over the share that has entered.
    pub(super) fn lend(&self, steps: u32) -> Arc<Loan> {
        let loan = Arc::new(Loan { steps, repaid: AtomicBool::new(false) });
        *self.lent() = Some(Arc::clone(&loan));
        loan
    }

    /// Moves the response that is over the share into it, if there is room now.
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

    /// The response is gone: gives back what it has of the overdraft, or else how many steps it has of the share instead.
    pub(super) fn leave(&self, loan: Option<&Loan>) -> usize {
        let mut lent = self.lent();
        if let Some(loan) = loan.filter(|loan| loan.repaid.load(Ordering::Relaxed)) {
            return loan.steps as usize;
        }
        *lent = None;
        self.permit.add_permits(1);
        0
    }

    /// Whether no response is over the share.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.permit.available_permits() == 1
    }

    fn lent(&self) -> MutexGuard<'_, Option<Arc<Loan>>> {
        // Nothing panics while the lock is held.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
