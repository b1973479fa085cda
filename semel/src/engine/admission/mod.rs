//! Admission: the limits that a request passes before its key is claimed.
//!
//! | file | limit |
//! | --- | --- |
//! | `attempts` | how many attempts run at a time, and how many wait to be settled |
//! | `quota` | how many keys one caller may leave unsettled, and how many new ones it may use |
//! | `ceiling` | how much the store keeps |
//!
//! `look` answers a request that is not admitted from the record.
//!
//! All of them are counted in this process, in bounded memory: no limit costs a question to the
//! store. A request that is not admitted still hears what the store has recorded under its key; it
//! is refused only where it would have run.

mod attempts;
mod ceiling;
mod quota;
pub(super) mod look;

use std::sync::Arc;
use std::time::Duration;

use self::attempts::Attempts;
use self::quota::{Place, Quota};
use super::error::RunError;
use crate::words::key::Key;
use crate::words::lease::Lease;

pub(super) use self::attempts::{Permit, Unsettled};
pub use self::ceiling::Ceiling;

/// How soon to come back when it is not known when there is room again.
const SOON: Duration = Duration::from_secs(1);

/// The limits of an engine. Clones count together.
#[derive(Clone)]
pub(super) struct Admission {
    attempts: Arc<Attempts>,
    quota: Option<Arc<Quota>>,
    ceiling: Option<Ceiling>,
}

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// As many attempts run as may run.
    Attempts,
    /// The store keeps as much as it may keep.
    Store,
    /// The caller has left as many keys unsettled as it may.
    Unsettled(Duration),
    /// The caller has used as many new keys as it may for now.
    New(Duration),
}

impl Refused {
    /// Whether a key that has a record may run all the same: no record comes with it.
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

/// The right to claim a key, and to run if the claim is granted. Dropped before, it is given back.
pub(super) struct Admitted {
    permit: Permit,
    place: Option<Place>,
}

impl Admitted {
    /// The claim was granted: the caller is charged until the attempt is settled. What is left is
    /// held while the work runs.
    pub(super) fn granted(self, lease: &Lease) -> Permit {
        if let Some(place) = self.place {
            place.keep(lease.key(), lease.attempt() == 1);
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
        let place = match &self.quota {
            Some(quota) => Some(quota.enter(key.scope(), is_new)?),
            None => None,
        };
        Ok(Admitted { permit, place })
    }

    /// An attempt is over, and the store has not taken what it came to.
    pub(super) fn unsettled(&self) -> Unsettled {
        self.attempts.unsettled()
    }

    /// An attempt has ended: its key is settled, or the next attempt may take it over, or it is
    /// left for an operator, who may take a while.
    pub(super) fn ended(&self, key: &Key, is_settled: bool) {
        if let Some(quota) = &self.quota {
            quota.ended(key, is_settled);
        }
    }
}
