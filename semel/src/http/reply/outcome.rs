//! An outcome as a response, and a response as an outcome.

use ::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;

use crate::http::response::headers;
use crate::words::outcome::{Outcome, OutcomeError};

/// The header of a replay: `true`.
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The header of an answer whose body was not recorded: `omitted`.
pub const IDEMPOTENCY_REPLAY: HeaderName = HeaderName::from_static("idempotency-replay");

/// A recorded outcome as a response.
pub(in crate::http) fn render(outcome: &Outcome, replayed: bool) -> Response<Bytes> {
    let mut response = Response::<Bytes>::from(outcome);
    let headers = response.headers_mut();
    if replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    if outcome.body().is_none() {
        headers.insert(IDEMPOTENCY_REPLAY, HeaderValue::from_static("omitted"));
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
