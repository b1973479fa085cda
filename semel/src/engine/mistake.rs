//! A mistake that a test makes on purpose: to release a key because nobody waits for its outcome.

use super::Once;
use super::claim::Copies;
use crate::fault;
use crate::words::lease::Lease;

pub(super) struct ReleaseOnDrop(Option<(Once, Lease, Copies)>);

impl ReleaseOnDrop {
    pub(super) fn of(once: &Once, lease: &Lease, copies: &Copies) -> Self {
        Self(fault::makes("release_on_drop").then(|| (once.clone(), lease.clone(), *copies)))
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some((once, lease, copies)) = self.0.take() {
            once.release_later(&lease, &copies);
        }
    }
}
