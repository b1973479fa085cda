//! Problems of HTTP (RFC 9457): status, code and title.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};

#[cfg(doc)]
use crate::http::Rejection;

/// The part of a problem (RFC 9457) that does not depend on the request.
///
/// The constants are the problems of the layer. A service in front of it or behind it can make
/// problems of its own in the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemType {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
}

impl ProblemType {
    /// See [`Rejection::KeyMissing`].
    pub const KEY_MISSING: Self =
        Self::new(StatusCode::BAD_REQUEST, "idempotency_key_missing", "An idempotency key is required");
    /// See [`Rejection::KeyInvalid`].
    pub const KEY_INVALID: Self =
        Self::new(StatusCode::BAD_REQUEST, "idempotency_key_invalid", "The idempotency key is not valid");
    /// See [`Rejection::RequestUnreadable`].
    pub const REQUEST_UNREADABLE: Self =
        Self::new(StatusCode::BAD_REQUEST, "request_unreadable", "The request could not be read");
    /// See [`Rejection::RequestTimeout`].
    pub const REQUEST_TIMEOUT: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request did not arrive in time");
    /// See [`Rejection::RequestTooLarge`].
    pub const REQUEST_TOO_LARGE: Self =
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", "The request is too large");
    /// See [`Rejection::KeyPending`].
    pub const KEY_PENDING: Self = Self::new(
        StatusCode::CONFLICT,
        "idempotency_key_pending",
        "A request with this idempotency key is being processed",
    );
    /// See [`Rejection::OutcomeUnknown`].
    pub const OUTCOME_UNKNOWN: Self = Self::new(
        StatusCode::CONFLICT,
        "idempotency_outcome_unknown",
        "The outcome of an earlier attempt is not known",
    );
    /// See [`Rejection::KeyReused`].
    pub const KEY_REUSED: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "idempotency_key_reused",
        "The idempotency key was used for another request",
    );
    /// See [`Rejection::StoreUnavailable`].
    pub const STORE_UNAVAILABLE: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "store_unavailable",
        "The request cannot be processed now",
    );
    /// See [`Rejection::OutcomePending`].
    pub const OUTCOME_PENDING: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_pending", "The outcome is not recorded yet");
    /// See [`Rejection::HandlerFailed`].
    pub const HANDLER_FAILED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "handler_failed",
        "The request failed, and its outcome is not known",
    );
    /// See [`Rejection::OutcomeUnrecorded`].
    pub const OUTCOME_UNRECORDED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "outcome_unrecorded",
        "The outcome could not be recorded",
    );
    /// See [`Rejection::CompletionMissing`].
    pub const COMPLETION_MISSING: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "completion_missing",
        "The service did not record the outcome in its transaction",
    );
    /// See [`Rejection::ScopeUnknown`].
    pub const SCOPE_UNKNOWN: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "scope_unknown",
        "It is not known whose idempotency key this is",
    );
    /// See [`Rejection::AnswerBrokeOff`].
    pub const ANSWER_BROKE_OFF: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_broke_off",
        "The answer broke off, and the outcome is not known",
    );
    /// See [`Rejection::ScopeMissing`].
    pub const SCOPE_MISSING: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "idempotency_scope_missing",
        "The request does not say whose idempotency key it has",
    );
    /// See [`Rejection::TooManyAttempts`].
    pub const TOO_MANY_ATTEMPTS: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_attempts",
        "Too many requests are being processed",
    );
    /// See [`Rejection::StoreFull`].
    pub const STORE_FULL: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_full", "No new idempotency keys are accepted now");
    /// See [`Rejection::QuotaExceeded`].
    pub const QUOTA_EXCEEDED: Self = Self::new(
        StatusCode::TOO_MANY_REQUESTS,
        "idempotency_quota_exceeded",
        "The caller has used up its quota of idempotency keys",
    );
    /// See [`Rejection::MemoryExhausted`].
    pub const MEMORY_EXHAUSTED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "memory_exhausted",
        "There is no room for the request now",
    );
    /// The kinds of all refusals of the layer.
    pub const ALL: [Self; 20] = [
        Self::KEY_MISSING,
        Self::KEY_INVALID,
        Self::REQUEST_UNREADABLE,
        Self::REQUEST_TIMEOUT,
        Self::REQUEST_TOO_LARGE,
        Self::KEY_PENDING,
        Self::OUTCOME_UNKNOWN,
        Self::KEY_REUSED,
        Self::STORE_UNAVAILABLE,
        Self::OUTCOME_PENDING,
        Self::HANDLER_FAILED,
        Self::OUTCOME_UNRECORDED,
        Self::COMPLETION_MISSING,
        Self::SCOPE_UNKNOWN,
        Self::ANSWER_BROKE_OFF,
        Self::SCOPE_MISSING,
        Self::TOO_MANY_ATTEMPTS,
        Self::STORE_FULL,
        Self::QUOTA_EXCEEDED,
        Self::MEMORY_EXHAUSTED,
    ];

    /// A problem with a code for programs, which should never change, and a title for people.
    pub const fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        Self { status, code, title }
    }

    /// The status of the response.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The code for programs.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// The title for people.
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// The problem as an object of RFC 9457, with the advice for this request. `page` describes the
    /// problems; the code is its fragment.
    pub fn details(&self, advice: &str, page: Option<&str>) -> Value {
        let kind = match page {
            Some(page) => format!("{page}#{}", self.code),
            None => format!("urn:semel:problem:{}", self.code),
        };
        json!({
            "type": kind,
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": advice,
            "code": self.code,
        })
    }

    /// The response with these details. No cache keeps it.
    pub fn response(&self, details: &Value) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(details.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The entry in the [published policy](crate::http::IdempotencyLayer::published).
    pub fn published(&self) -> Value {
        json!({ "status": self.status.as_u16(), "code": self.code, "title": self.title })
    }
}
