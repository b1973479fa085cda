//! Refusals as values.

use std::time::Duration;

use crate::engine::RunError;
use crate::engine::policy::Policy;
use crate::http::request::key::KeyFault;
use crate::http::response::settle::BrokeOff;
use crate::protocol::answer::Held;
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// The pause before a retry when nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// The pause before a retry when records have to expire first.
const LATER: Duration = Duration::from_secs(30);

/// The reason why a request was refused.
///
/// The extensions of the response contain it, whatever the response looks like, for layers further
/// out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// 400: a key is required, and the request has none.
    KeyMissing,
    /// 400: the header does not contain exactly one key.
    KeyInvalid(KeyFault),
    /// 400: the body could not be read to its end.
    RequestUnreadable,
    /// 408: the body did not arrive in time.
    RequestTimeout,
    /// 413: the body is over the limit, in bytes.
    RequestTooLarge(usize),
    /// 409: an attempt runs.
    KeyPending {
        /// The time since when it runs, if known.
        since: Option<Timestamp>,
        /// The latest end of its lease, if it is not renewed.
        retry_after: Duration,
    },
    /// 409: an attempt was lost, and its effects are unknown.
    OutcomeUnknown(Held),
    /// 422: the key was used for another request.
    KeyReused {
        /// The time since when the key is in use.
        since: Timestamp,
    },
    /// 503: there is no room in memory for the request or for its replay; nothing ran.
    MemoryExhausted,
    /// 503: the store does not answer; nothing ran.
    StoreUnavailable,
    /// 503: the request was carried out, but its outcome is not recorded yet.
    OutcomePending,
    /// 500: the handler panicked, and its effects are unknown.
    HandlerFailed {
        /// Set if the key is held now, until an operator or a hook settles it; otherwise the next
        /// attempt takes over.
        held: bool,
    },
    /// 502: the response of a service behind a connection broke off, and its effects are unknown.
    AnswerBrokeOff {
        /// Set if the key is held now, until an operator or a hook settles it; otherwise the next
        /// attempt takes over.
        held: bool,
    },
    /// 500: the request was carried out, but the store refused to record its outcome.
    OutcomeUnrecorded,
    /// 500: the handler succeeded without recording its outcome in its transaction, which the
    /// policy `transactional` requires.
    CompletionMissing,
    /// 500: the application did not identify the caller.
    ScopeUnknown,
    /// 400: the request has none of the credentials that distinguish callers.
    ScopeMissing {
        /// The names of these credentials.
        expected: String,
        /// Set if the request has cookies, one of which may identify the caller.
        has_cookies: bool,
    },
    /// 503: too many attempts are running; nothing was claimed.
    TooManyAttempts,
    /// 503: the store has reached its ceiling, and the key is new; nothing was claimed.
    StoreFull,
    /// 429: the caller has used up its quota of keys; nothing was claimed.
    QuotaExceeded {
        /// The time after which there may be room again.
        retry_after: Duration,
    },
}

impl Rejection {
    /// The refusal for a caller whose request has no outcome. The error of the work itself is
    /// reported elsewhere.
    pub(in crate::http) fn of(error: &RunError, policy: &Policy) -> Self {
        match error {
            RunError::Key(error) => Self::KeyInvalid(error.clone().into()),
            RunError::Intent(_) => Self::RequestUnreadable,
            RunError::Pending { since, retry_after } => {
                Self::KeyPending { since: Some(*since), retry_after: *retry_after }
            }
            RunError::Superseded => Self::KeyPending { since: None, retry_after: SOON },
            RunError::Held(held) => Self::OutcomeUnknown(*held),
            RunError::Mismatch(with) => Self::KeyReused { since: with.since },
            RunError::Unavailable(_) => Self::StoreUnavailable,
            RunError::TooManyAttempts => Self::TooManyAttempts,
            RunError::StoreFull => Self::StoreFull,
            RunError::QuotaExceeded { retry_after } => Self::QuotaExceeded { retry_after: *retry_after },
            RunError::OutcomePending(_) | RunError::Interrupted => Self::OutcomePending,
            RunError::Unrecorded(_) => Self::OutcomeUnrecorded,
            RunError::CompletionMissing => Self::CompletionMissing,
            RunError::Failed { source, .. } if source.is::<BrokeOff>() => {
                Self::AnswerBrokeOff { held: policy.after_crash() == AfterCrash::Hold }
            }
            RunError::Failed { .. } | RunError::Outcome(_) => {
                Self::HandlerFailed { held: policy.after_crash() == AfterCrash::Hold }
            }
        }
    }

    /// Returns `true` if nothing can have happened in this request. An earlier one with the same
    /// key may have done something.
    pub(in crate::http) fn nothing_ran(&self) -> bool {
        !matches!(
            self,
            Self::OutcomeUnknown(_)
                | Self::OutcomePending
                | Self::HandlerFailed { .. }
                | Self::AnswerBrokeOff { .. }
                | Self::OutcomeUnrecorded
                | Self::CompletionMissing
        )
    }

    /// The pause before a retry, if a retry helps.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::KeyPending { retry_after, .. } | Self::QuotaExceeded { retry_after } => Some(*retry_after),
            Self::StoreFull => Some(LATER),
            Self::TooManyAttempts
            | Self::StoreUnavailable
            | Self::MemoryExhausted
            | Self::OutcomePending
            | Self::RequestTimeout => Some(SOON),
            Self::HandlerFailed { held: false } | Self::AnswerBrokeOff { held: false } => Some(SOON),
            _ => None,
        }
    }
}
