//! Admission: the limits that a request passes before its key is claimed.
//!
//! | file | limit |
//! | --- | --- |
//! | `attempts` | the number of running attempts, and of attempts that are not settled yet |
//! | `quota` | the number of unsettled keys of one caller, and of its new keys within a time |
//! | `ceiling` | the size of the store |
//!
//! `look` answers a request that is not admitted. It returns the outcome or the state that the
//! store has recorded under the key, and refuses the request only if it would have run.
//!
//! All limits are counted in this process, in bounded memory, without a query to the store.

mod attempts;
mod ceiling;
mod quota;
pub(super) mod look;

use std::sync::Arc;
use std::time::Duration;

use self::attempts::Attempts;
use self::quota::{Charge, Quota};
use super::error::RunError;
use crate::words::key::Key;
use crate::words::lease::Lease;

pub(super) use self::attempts::{Permit, Unsettled};
pub use self::ceiling::Ceiling;

/// The delay of a retry that a refused caller is told when the real delay is not known.
const SOON: Duration = Duration::from_secs(1);

/// The limits of an engine. Clones share their counts.
#[derive(Clone)]
pub(super) struct Admission {
    attempts: Arc<Attempts>,
    quota: Option<Arc<Quota>>,
    ceiling: Option<Ceiling>,
}

/// The reason why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The number of attempts is at its limit.
    Attempts,
    /// The store has reached its ceiling.
    Store,
    /// The caller's number of unsettled keys is at its limit.
    Unsettled(Duration),
    /// The caller's number of new keys is at its limit.
    New(Duration),
}

impl Refused {
    /// Returns `true` if only new keys are refused: a key that has a record may still run.
    pub(super) fn is_for_new_keys(self) -> bool {
        matches!(self, Self::Store | Self::New(_))
    }

    pub(super) fn error(self) -> RunError {
        match self {
            Self::Attempts => RunError::TooManyAttempts,
            Self::Store => RunError::StoreFull,
            Self::Unsettled(retry_after) | Self::New(retry_after) => RunError::QuotaExceeded { retry_after },
        }
    }
}

/// The right to claim a key, and to run if the claim is granted. Dropping it returns the right.
pub(super) struct Admitted {
    permit: Permit,
    charge: Option<Charge>,
}

impl Admitted {
    /// Charges the caller for a granted claim until its attempt is settled. Returns the permit to
    /// run.
    pub(super) fn granted(self, lease: &Lease) -> Permit {
        if let Some(charge) = self.charge {
            charge.keep(lease.key(), lease.attempt() == 1);
        }
        self.permit
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            attempts: Arc::new(Attempts::new(super::Once::DEFAULT_MAX_ATTEMPTS)),
            quota: None,
            ceiling: None,
        }
    }
}

impl Admission {
    pub(super) fn set_max_attempts(&mut self, limit: usize) {
        self.attempts = Arc::new(Attempts::new(limit));
    }

    pub(super) fn set_max_unsettled(&mut self, limit: u32) {
        let limits = self.quota.as_ref().map(|quota| quota.limits).unwrap_or_default();
        self.quota = Some(Arc::new(Quota::new(limits.with_unsettled(limit))));
    }

    pub(super) fn set_max_new(&mut self, limit: u32, within: Duration) {
        let limits = self.quota.as_ref().map(|quota| quota.limits).unwrap_or_default();
        self.quota = Some(Arc::new(Quota::new(limits.with_new(limit, within))));
    }

    pub(super) fn set_ceiling(&mut self, ceiling: Ceiling) {
        self.ceiling = Some(ceiling);
    }

    /// Admits a request whose key may be new.
    pub(super) fn admit(&self, key: &Key) -> Result<Admitted, Refused> {
        if self.ceiling.as_ref().is_some_and(Ceiling::is_reached) {
            return Err(Refused::Store);
        }
        self.admit_if(key, true)
    }

    /// Admits a request whose key has a record.
    pub(super) fn admit_known(&self, key: &Key) -> Result<Admitted, Refused> {
        self.admit_if(key, false)
    }

    fn admit_if(&self, key: &Key, is_new: bool) -> Result<Admitted, Refused> {
        let permit = self.attempts.enter().ok_or(Refused::Attempts)?;
        let charge = match &self.quota {
            Some(quota) => Some(quota.charge(key.scope(), is_new)?),
            None => None,
        };
        Ok(Admitted { permit, charge })
    }

    /// Counts an attempt as unsettled, because the store has not taken its settlement.
    pub(super) fn unsettled(&self) -> Unsettled {
        self.attempts.unsettled()
    }

    /// Ends the charge for an attempt. A key that it left held for an operator still counts against
    /// the caller's quota for some time.
    pub(super) fn settled(&self, key: &Key, is_held: bool) {
        if let Some(quota) = &self.quota {
            quota.settled(key, is_held);
        }
    }
}
