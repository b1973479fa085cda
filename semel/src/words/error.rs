//! The failure of a store.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The failure of a store to carry out a request.
///
/// The message says what was tried on what; the source is the cause. Clones share the cause,
/// because one failure may be reported to many callers.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: Kind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl StdError for StoreError {
    /// The cause itself rather than the `Arc` around it, so that a caller can downcast to the
    /// driver's error and read its code.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The meaning of a failure for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Unavailable,
    Unknown,
    Corrupt,
    Refused,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "store unavailable",
            Self::Unknown => "store did not answer",
            Self::Corrupt => "record not understood",
            Self::Refused => "store refused",
        })
    }
}

impl StoreError {
    /// An error after which nothing was applied; another try may succeed.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unavailable, message: message.into(), source: None }
    }

    /// An error after which the request may or may not have been applied; the caller repeats it
    /// with the same token.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unknown, message: message.into(), source: None }
    }

    /// An error for a record that cannot be decoded or was written by a newer version. Such a
    /// record is never treated as absent.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self { kind: Kind::Corrupt, message: message.into(), source: None }
    }

    /// An error after which nothing was applied and no further try will help.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, message: message.into(), source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..self }
    }

    /// Returns `true` if another try may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Unknown)
    }

    /// Returns `true` if a record cannot be decoded.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.kind == Kind::Corrupt
    }

    /// Returns `true` if the request may have been applied.
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_can_be_downcast() {
        let error = StoreError::unavailable("asked").with_source(fmt::Error);
        assert!(error.source().is_some_and(|source| source.is::<fmt::Error>()));
        assert_eq!(error.to_string(), "store unavailable: asked");
    }
}
