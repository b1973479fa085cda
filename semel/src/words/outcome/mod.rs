//! The recorded result, replayed to every repeat.

mod headers;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::words::text::{Rule, TextError};

pub(crate) use headers::Headers;

const SUBTYPE: Rule =
    Rule { part: "subtype", min_bytes: 1, max_bytes: 64, ascii_only: true, outer_spaces: false };

/// The result of an attempt: status, headers, body, and a subtype such as `already_exists`.
///
/// A replay has exactly the bytes that were recorded. An outcome whose body was too large may have
/// been recorded without it; then [`Outcome::body`] is `None`, which differs from an empty body.
///
/// An outcome is one pointer: clones share its content.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome(Arc<Parts>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Parts {
    status: u16,
    subtype: Option<Box<str>>,
    headers: Headers,
    body: Option<Bytes>,
}

impl Outcome {
    /// The largest number of bytes in a body in any store. A [`Policy`](crate::Policy) sets a lower
    /// limit.
    pub const MAX_BODY_BYTES: usize = 16 << 20;
    /// The largest number of bytes in the names and values of all headers together.
    pub const MAX_HEADER_BYTES: usize = 64 << 10;

    /// An outcome with a status as in HTTP, no headers and an empty body.
    ///
    /// # Errors
    /// [`OutcomeError::Status`] if the status is not within 200 to 999: an informational one (1xx)
    /// announces an answer and is none.
    pub fn new(status: u16) -> Result<Self, OutcomeError> {
        if !(200..=999).contains(&status) {
            return Err(OutcomeError::Status { found: status });
        }
        let parts = Parts { status, subtype: None, headers: Headers::default(), body: Some(Bytes::new()) };
        Ok(Self(Arc::new(parts)))
    }

    /// A status 200 with the value as a JSON body.
    ///
    /// # Errors
    /// [`OutcomeError::Encode`] if the value has no JSON form, [`OutcomeError::Body`] if that is
    /// too large.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, OutcomeError> {
        Self::json_with_status(200, value)
    }

    /// A status with the value as a JSON body.
    ///
    /// # Errors
    /// As [`Outcome::json`], and [`OutcomeError::Status`] if the status is not within 200 to 999.
    pub fn json_with_status<T: Serialize + ?Sized>(status: u16, value: &T) -> Result<Self, OutcomeError> {
        let body = serde_json::to_vec(value).map_err(OutcomeError::Encode)?;
        Self::new(status)?.with_headers([("content-type", "application/json")])?.with_body(body)
    }

    /// The same outcome with this body.
    ///
    /// # Errors
    /// [`OutcomeError::Body`] if the body is longer than [`Outcome::MAX_BODY_BYTES`].
    pub fn with_body(self, body: impl Into<Bytes>) -> Result<Self, OutcomeError> {
        let body = body.into();
        if body.len() > Self::MAX_BODY_BYTES {
            return Err(OutcomeError::Body { bytes: body.len(), limit: Self::MAX_BODY_BYTES });
        }
        Ok(self.with(|parts| parts.body = Some(body)))
    }

    /// The same outcome without its body, for a body that was too large to keep or was streamed.
    #[must_use]
    pub fn without_body(self) -> Self {
        self.with(|parts| parts.body = None)
    }

    /// The same outcome with these headers, in this order; a name may occur more than once.
    ///
    /// # Errors
    /// [`OutcomeError::Headers`] if they are longer than [`Outcome::MAX_HEADER_BYTES`] together,
    /// [`OutcomeError::Text`] if a name is empty or not ASCII.
    pub fn with_headers<'a, V: AsRef<[u8]>>(
        self,
        headers: impl IntoIterator<Item = (&'a str, V)>,
    ) -> Result<Self, OutcomeError> {
        Ok(self.with_stored_headers(Headers::new(headers)?))
    }

    pub(crate) fn with_stored_headers(self, headers: Headers) -> Self {
        self.with(|parts| parts.headers = headers)
    }

    /// The same outcome with a subtype, a word for programs that distinguishes results of the same
    /// status.
    ///
    /// # Errors
    /// [`OutcomeError::Text`] if it is not 1 to 64 printable ASCII characters.
    pub fn with_subtype(self, subtype: &str) -> Result<Self, OutcomeError> {
        let subtype = SUBTYPE.check(subtype)?;
        Ok(self.with(|parts| parts.subtype = Some(subtype)))
    }

    fn with(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The status, as in HTTP.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// The subtype, if there is one.
    pub fn subtype(&self) -> Option<&str> {
        self.0.subtype.as_deref()
    }

    /// The headers, in the order they were given. The values of an outcome that was read from a
    /// store share their memory with its body: copy a value that is kept for long.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Bytes)> {
        self.0.headers.iter()
    }

    /// The headers in their stored form.
    pub(crate) fn stored_headers(&self) -> &[u8] {
        self.0.headers.as_bytes()
    }

    /// The body; `None` if the outcome was recorded without it.
    pub fn body(&self) -> Option<&Bytes> {
        self.0.body.as_ref()
    }

    /// The JSON body as a value.
    ///
    /// # Errors
    /// [`OutcomeError::Omitted`] if the body was not recorded, [`OutcomeError::Decode`] if it does
    /// not decode to a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, OutcomeError> {
        let body = self.body().ok_or(OutcomeError::Omitted)?;
        serde_json::from_slice(body).map_err(OutcomeError::Decode)
    }
}

/// A clone, for what takes an outcome or a response.
impl From<&Outcome> for Outcome {
    fn from(outcome: &Outcome) -> Self {
        outcome.clone()
    }
}

/// Shows sizes, not contents: bodies do not belong in logs.
impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { status, subtype, headers, body } = &*self.0;
        f.debug_struct("Outcome")
            .field("status", status)
            .field("subtype", subtype)
            .field("headers", &headers.count())
            .field("body_bytes", &body.as_ref().map(Bytes::len))
            .finish()
    }
}

/// The reason why an outcome cannot be made, or its body not be parsed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutcomeError {
    /// The status is out of range.
    #[error("status {found} is not within 200 to 999")]
    Status {
        /// The status that was given.
        found: u16,
    },
    /// The body is too large for any store.
    #[error("body is {bytes} bytes long, the limit is {limit}")]
    Body {
        /// The length of the body.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The headers are too large together.
    #[error("headers are {bytes} bytes long together, the limit is {limit}")]
    Headers {
        /// The length of the headers.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The subtype or a header's name breaks a limit.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The value has no JSON form.
    #[error("the value cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// The recorded body does not decode to the requested type.
    #[error("the recorded body is not the requested value")]
    Decode(#[source] serde_json::Error),
    /// The outcome was recorded without its body.
    #[error("the outcome was recorded without its body, which was over the limit")]
    Omitted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let ok = Outcome::new(200).unwrap();
        for status in [0, 42, 100, 101, 199, 1_000] {
            let refused = Outcome::new(status).unwrap_err().to_string();
            assert_eq!(refused, format!("status {status} is not within 200 to 999"));
        }
        assert_eq!(
            ok.clone().with_body(vec![0; Outcome::MAX_BODY_BYTES + 1]).unwrap_err().to_string(),
            "body is 16777217 bytes long, the limit is 16777216"
        );
        let long = Bytes::from(vec![b'x'; Outcome::MAX_HEADER_BYTES]);
        assert_eq!(
            ok.clone().with_headers([("a", long)]).unwrap_err().to_string(),
            "headers are 65537 bytes long together, the limit is 65536"
        );
        assert_eq!(ok.with_subtype("").unwrap_err().to_string(), "subtype is empty");
    }

    #[test]
    fn a_json_outcome_has_the_status_that_was_asked_for() {
        let created = Outcome::json_with_status(201, &"paid").unwrap();
        assert_eq!((created.status(), created.parse::<String>().unwrap()), (201, "paid".to_owned()));
        assert!(created.headers().eq([("content-type", Bytes::from_static(b"application/json"))]));
        assert_eq!(Outcome::json(&7).unwrap(), Outcome::json_with_status(200, &7).unwrap());
        assert!(matches!(Outcome::json_with_status(99, &7), Err(OutcomeError::Status { found: 99 })));
    }

    #[test]
    fn no_body_is_not_an_empty_body() {
        let empty = Outcome::new(204).unwrap();
        assert_eq!(empty.body().map(|b| b.len()), Some(0));
        assert_ne!(empty, empty.clone().without_body());
        assert!(matches!(empty.without_body().parse::<u8>(), Err(OutcomeError::Omitted)));
    }

    #[test]
    fn repeated_headers_keep_their_order() {
        let outcome = Outcome::new(200).unwrap().with_headers([("link", "b"), ("link", "a")]).unwrap();
        let values: Vec<_> = outcome.headers().map(|(_, value)| value.to_vec()).collect();
        assert_eq!(values, [b"b", b"a"]);
    }
}
