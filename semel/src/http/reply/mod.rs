//! The last step, *reply*: the handler's own response, a recorded one, or a refusal.
//!
//! - [`rejection`]: refusals as values, and as responses.
//! - `published`: the policy that clients can read.

pub(in crate::http) mod rejection;
pub(in crate::http) mod published;

use ::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use http_body::Body;

use crate::engine::policy::Policy;
use crate::engine::{Ran, RunError};
use crate::http::reply::rejection::Rejection;
use crate::http::request::body::ReadAhead;
use crate::http::response::headers;
use crate::http::response::run::Own;
use crate::words::outcome::{Outcome, OutcomeError};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const REPLAY: HeaderName = HeaderName::from_static("idempotency-replay");

/// The answer to a caller.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(in crate::http) enum Answer<R: Body, E> {
    /// The handler's own response, untouched.
    Own(Result<Response<ReadAhead<R>>, E>),
    Recorded {
        outcome: Outcome,
        replayed: bool,
        /// The body of the handler's own response, as far as it was read.
        own: Option<Bytes>,
    },
    Refused(Rejection),
}

/// The answer after the run of an attempt. No caller gets an outcome that is not recorded: the
/// handler's own response is passed on if it is the recorded one, or if the key was released or
/// abandoned with it.
pub(in crate::http) fn answer<R: Body, E>(
    ran: Result<Ran<Outcome>, RunError>,
    own: Option<Own<R, E>>,
    policy: &Policy,
) -> Answer<R, E> {
    match (ran, own) {
        (Ok(Ran { value, replayed: false }), Some(own)) if own.outcome.as_ref() == Some(&value) => {
            Answer::Own(own.result)
        }
        (Ok(Ran { value, .. }), _) if value.status() < 200 => {
            tracing::error!(
                status = value.status(),
                "a recorded outcome has no final status and cannot be replayed"
            );
            Answer::Refused(Rejection::OutcomeUnrecorded)
        }
        (Ok(Ran { value, replayed }), own) => {
            let own = own.and_then(|own| own.result.ok()).map(|response| response.body().read());
            Answer::Recorded { outcome: value, replayed, own }
        }
        (Err(RunError::Failed { .. }), Some(own)) => Answer::Own(own.result),
        (Err(error), _) => Answer::Refused(refusal(&error, policy)),
    }
}

/// The refusal for the caller; details that are only for the operator go to the log.
fn refusal(error: &RunError, policy: &Policy) -> Rejection {
    match error {
        RunError::Unavailable(cause) | RunError::OutcomePending(cause) => {
            tracing::warn!(error = %cause, "{error}");
        }
        RunError::Unrecorded(cause) => tracing::error!(error = %cause, "{error}"),
        RunError::CompletionMissing => tracing::error!("{error}"),
        // The message of a panic may quote the request; `Debug` escapes its line ends, so that they
        // do not end the line of the log.
        RunError::Failed { source, .. } => tracing::error!(error = ?source.to_string(), "the handler failed"),
        _ => {}
    }
    Rejection::of(error, policy)
}

/// A recorded outcome as a response.
pub(in crate::http) fn render(outcome: &Outcome, replayed: bool) -> Response<Bytes> {
    let mut response = Response::<Bytes>::from(outcome);
    let headers = response.headers_mut();
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    if outcome.body().is_none() {
        headers.insert(REPLAY, HeaderValue::from_static("omitted"));
    }
    response
}

/// Status, headers and body of an outcome. Headers that belong to one caller or one connection are
/// left out, should they have been recorded; and without a body, the headers that describe it.
impl From<&Outcome> for Response<Bytes> {
    fn from(outcome: &Outcome) -> Self {
        let body = outcome.body().cloned();
        let mut response = Response::new(Bytes::new());
        *response.status_mut() =
            StatusCode::from_u16(outcome.status()).expect("the status of an outcome has three digits");
        for (name, value) in outcome.headers() {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_maybe_shared(value))
            else {
                tracing::debug!("a recorded header is not valid in HTTP and is left out");
                continue;
            };
            if !headers::is_never_recorded(&name) && (body.is_some() || !headers::is_of_the_body(&name)) {
                response.headers_mut().append(name, value);
            }
        }
        *response.body_mut() = body.unwrap_or_default();
        response
    }
}

impl Outcome {
    /// The outcome of a response: its status, headers and body. Headers that belong to one caller
    /// or one connection, such as `Set-Cookie` and `Date`, are left out.
    ///
    /// ```
    /// use http::Response;
    /// use semel::Outcome;
    ///
    /// let response = Response::builder().status(201).header("location", "/charges/7").body("charged")?;
    /// let outcome = Outcome::from_response(response)?;
    /// assert_eq!((outcome.status(), outcome.headers().count()), (201, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OutcomeError::Body`] or [`OutcomeError::Headers`] if the response is too large.
    pub fn from_response<B: Into<Bytes>>(response: Response<B>) -> Result<Self, OutcomeError> {
        let (parts, body) = response.into_parts();
        let kept = parts.headers.iter().filter(|(name, _)| !headers::is_never_recorded(name));
        Self::new(parts.status.as_u16())?
            .with_headers(kept.map(|(name, value)| (name.as_str(), value.as_bytes())))?
            .with_body(body)
    }
}

/// See [`Outcome::from_response`].
impl<B: Into<Bytes>> TryFrom<Response<B>> for Outcome {
    type Error = OutcomeError;

    fn try_from(response: Response<B>) -> Result<Self, OutcomeError> {
        Self::from_response(response)
    }
}

impl From<Outcome> for Response<Bytes> {
    fn from(outcome: Outcome) -> Self {
        Self::from(&outcome)
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{CONTENT_TYPE, LINK, SET_COOKIE};

    use super::*;

    #[test]
    fn a_response_survives_as_an_outcome_without_what_belongs_to_one_caller() {
        let response = Response::builder()
            .status(201)
            .header(CONTENT_TYPE, "text/plain")
            .header(LINK, "<b>")
            .header(LINK, "<a>")
            .header(SET_COOKIE, "sid=1")
            .body("paid");
        let outcome = Outcome::from_response(response.unwrap()).unwrap();
        let names: Vec<_> = outcome.headers().map(|(name, _)| name.to_owned()).collect();
        assert_eq!((outcome.status(), names.join(" ").as_str()), (201, "content-type link link"));
        let again = Response::<Bytes>::from(&outcome);
        assert_eq!((again.status().as_u16(), again.body().as_ref()), (201, b"paid".as_slice()));
        assert_eq!(Outcome::try_from(again).unwrap(), outcome);
    }
}
