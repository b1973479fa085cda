//! The errors: one that all others convert into, and those of single operations.
//!
//! Each operation has an error of its own, with the facts that its caller may need. A function that
//! calls several of them returns [`semel::Error`](Error), which `?` makes of any of them, and
//! [`Error::kind`] says what it means. All of them also convert into `anyhow::Error` and
//! `Box<dyn std::error::Error + Send + Sync>`.
//!
//! ```
//! use semel::error::ErrorKind;
//! use semel::{Intent, Key};
//!
//! fn named(invoice: &str) -> Result<(Key, Intent), semel::Error> {
//!     Ok((Key::new("billing", invoice)?, Intent::of("charge", invoice, &1_000)?))
//! }
//!
//! let error = named("").unwrap_err();
//! assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, "key is empty"));
//! ```

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;

pub use crate::engine::policy::PolicyError;
pub use crate::protocol::answer::LeaseLost;
pub use crate::words::fingerprint::FingerprintError;
pub use crate::words::intent::IntentError;
pub use crate::words::key::KeyError;
pub use crate::words::lease::TokenError;
pub use crate::words::outcome::OutcomeError;
pub use crate::words::terms::TermsError;
pub use crate::words::text::TextError;

use crate::engine::RunError;
#[cfg(feature = "http")]
use crate::http::{HeaderRefused, KeyFault, PointerError};
use crate::words::error::StoreError;

/// Any error of this crate.
///
/// The message includes the messages of the causes. [`source`](StdError::source) is the error of
/// the operation, such as a [`RunError`] or a [`StoreError`], for `downcast_ref`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: Box<dyn StdError + Send + Sync>,
}

/// The meaning of an [`Error`] for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A key, an intent, an outcome, a policy or another setting breaks a limit. The same call
    /// fails again.
    Invalid,
    /// An attempt runs, or its outcome is not recorded yet. The same call succeeds later.
    Pending,
    /// An attempt was lost, and what it did is unknown: an operator or a reconcile hook has to
    /// decide. A call with the same key is refused until then; one with a new key may repeat the
    /// effect.
    Held,
    /// The key was used for another request.
    Mismatch,
    /// Another attempt has taken over, or the outcome was recorded before.
    LeaseLost,
    /// A limit of attempts, of keys or of the store is reached, and nothing ran. The same call may
    /// succeed later.
    Limited,
    /// The store does not answer, and nothing was applied. The same call may succeed later.
    Unavailable,
    /// It is unknown whether the call was applied, because its answer was lost. The same call with
    /// the same key tells.
    Unknown,
    /// The store refuses the call, and would refuse it again.
    Refused,
    /// What is recorded cannot be read: it is damaged, of a newer version, or of another type.
    Corrupt,
    /// The work failed before anything happened, and the key is free: the same call runs it again.
    NothingHappened,
    /// The work failed, and what it did is unknown. The key is held, or the next attempt takes
    /// over, as the policy says.
    Failed,
}

impl Error {
    /// The meaning of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns `true` if the same call with the same key may succeed later.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Pending
            | ErrorKind::LeaseLost
            | ErrorKind::Limited
            | ErrorKind::Unavailable
            | ErrorKind::Unknown
            | ErrorKind::NothingHappened => true,
            ErrorKind::Invalid
            | ErrorKind::Held
            | ErrorKind::Mismatch
            | ErrorKind::Refused
            | ErrorKind::Corrupt
            | ErrorKind::Failed => false,
        }
    }

    fn new(kind: ErrorKind, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.source.to_string();
        f.write_str(&said)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // The messages of some errors contain those of their causes.
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        let kind = match &error {
            RunError::Key(_) | RunError::Intent(_) => ErrorKind::Invalid,
            RunError::Pending { .. } | RunError::OutcomePending(_) => ErrorKind::Pending,
            RunError::Held(_) | RunError::Unrecorded(_) | RunError::CompletionMissing => ErrorKind::Held,
            RunError::Mismatch(_) => ErrorKind::Mismatch,
            RunError::Superseded => ErrorKind::LeaseLost,
            RunError::TooManyAttempts | RunError::StoreFull | RunError::QuotaExceeded { .. } => {
                ErrorKind::Limited
            }
            RunError::Unavailable(cause) if !cause.is_unknown() => kind_of(cause),
            RunError::Unavailable(_) => ErrorKind::Unavailable,
            RunError::Interrupted => ErrorKind::Unknown,
            RunError::Failed { nothing_happened: true, .. } => ErrorKind::NothingHappened,
            RunError::Failed { .. } => ErrorKind::Failed,
            RunError::Outcome(_) => ErrorKind::Corrupt,
        };
        Self::new(kind, error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::new(kind_of(&error), error)
    }
}

fn kind_of(error: &StoreError) -> ErrorKind {
    if error.is_unknown() {
        ErrorKind::Unknown
    } else if error.is_transient() {
        ErrorKind::Unavailable
    } else if error.is_corrupt() {
        ErrorKind::Corrupt
    } else {
        ErrorKind::Refused
    }
}

impl From<OutcomeError> for Error {
    fn from(error: OutcomeError) -> Self {
        let kind = match &error {
            OutcomeError::Decode(_) | OutcomeError::Omitted => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error)
    }
}

impl From<LeaseLost> for Error {
    fn from(error: LeaseLost) -> Self {
        Self::new(ErrorKind::LeaseLost, error)
    }
}

/// For conversions that cannot fail.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Errors that mean a broken limit.
macro_rules! invalid {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::new(ErrorKind::Invalid, error)
            }
        }
    )+};
}

invalid!(FingerprintError, IntentError, KeyError, PolicyError, TermsError, TextError, TokenError);
#[cfg(feature = "http")]
invalid!(HeaderRefused, KeyFault, PointerError);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Failure;
    use crate::engine::policy::Policy;
    use crate::protocol::answer::Ack;
    use crate::words::key::Key;
    use crate::words::outcome::Outcome;

    fn refused() -> StoreError {
        StoreError::refused("the table is missing").with_source(fmt::Error)
    }

    #[test]
    fn the_message_includes_every_cause_once() {
        let error = Error::from(RunError::Unavailable(refused()));
        assert_eq!(
            error.to_string(),
            format!("the key could not be claimed: store refused: the table is missing: {}", fmt::Error)
        );
        let transparent = Error::from(Key::new("", "k").unwrap_err());
        assert_eq!(transparent.to_string(), "realm is empty");
    }

    #[test]
    fn the_source_is_the_error_of_the_operation() {
        let error = Error::from(RunError::Unrecorded(refused()));
        let source = error.source().and_then(|source| source.downcast_ref::<RunError>());
        assert!(matches!(source, Some(RunError::Unrecorded(_))));
    }

    #[test]
    fn every_kind_is_told_apart() {
        let kind = |error: Error| error.kind();
        assert_eq!(kind(RunError::StoreFull.into()), ErrorKind::Limited);
        assert_eq!(kind(RunError::Superseded.into()), ErrorKind::LeaseLost);
        assert_eq!(kind(RunError::CompletionMissing.into()), ErrorKind::Held);
        assert_eq!(kind(RunError::OutcomePending(refused()).into()), ErrorKind::Pending);
        assert_eq!(kind(refused().into()), ErrorKind::Refused);
        assert_eq!(kind(StoreError::corrupt("x").into()), ErrorKind::Corrupt);
        assert_eq!(kind(StoreError::unknown("x").into()), ErrorKind::Unknown);
        assert_eq!(kind(StoreError::unavailable("x").into()), ErrorKind::Unavailable);
        assert_eq!(kind(LeaseLost(Ack::Finished).into()), ErrorKind::LeaseLost);
        assert_eq!(kind(RunError::from(Failure::unknown("x")).into()), ErrorKind::Failed);
        assert_eq!(kind(RunError::Unavailable(refused()).into()), ErrorKind::Refused);
        assert_eq!(kind(RunError::Unavailable(StoreError::corrupt("x")).into()), ErrorKind::Corrupt);
        let omitted = Outcome::new(200).unwrap().without_body().parse::<u8>().unwrap_err();
        assert_eq!(kind(omitted.into()), ErrorKind::Corrupt);
        assert_eq!(kind(Outcome::new(7).unwrap_err().into()), ErrorKind::Invalid);
    }

    #[test]
    fn what_may_succeed_later_is_transient() {
        assert!(Error::from(RunError::Interrupted).is_transient());
        assert!(Error::from(StoreError::unavailable("x")).is_transient());
        assert!(!Error::from(refused()).is_transient());
        assert!(!Error::from(RunError::from(Failure::unknown("x"))).is_transient());
        assert!(Error::from(RunError::from(Failure::nothing_happened("x"))).is_transient());
        assert!(!Error::from(RunError::Unavailable(refused())).is_transient());
    }

    #[test]
    fn anyhow_takes_every_error() {
        fn taken<E>() -> impl Fn(E) -> anyhow::Error
        where
            E: StdError + Send + Sync + 'static,
            Error: From<E>,
        {
            |error| (|| -> anyhow::Result<()> { Err(error)? })().expect_err("it was an error")
        }
        let _ = (taken::<Error>(), taken::<RunError>(), taken::<StoreError>(), taken::<OutcomeError>());
        let _ = (taken::<FingerprintError>(), taken::<IntentError>(), taken::<KeyError>());
        let _ = (taken::<TermsError>(), taken::<TextError>(), taken::<TokenError>(), taken::<LeaseLost>());
        #[cfg(feature = "http")]
        let _ = (taken::<HeaderRefused>(), taken::<KeyFault>(), taken::<PointerError>());
        let too_long = Policy::hold().with_wait(Duration::MAX).check().unwrap_err();
        assert!(taken::<PolicyError>()(too_long).to_string().starts_with("wait of"));
    }

    #[test]
    fn a_failure_is_made_of_errors_of_any_kind() {
        let failed = |work: fn() -> Result<(), Failure>| work().unwrap_err().to_string();
        assert_eq!(failed(|| Err(anyhow::anyhow!("the bank is closed"))?), "the bank is closed");
        assert_eq!(failed(|| Err("the bank is closed")?), "the bank is closed");
        assert_eq!(failed(|| Err(Key::new("r", "").unwrap_err())?), "key is empty");
        assert!(!Failure::from("x").is_nothing_happened());
    }
}
