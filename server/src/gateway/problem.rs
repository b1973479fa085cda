//! What the gateway itself refuses, as problem details (RFC 9457).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::Returned;

/// Why a request got no answer of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// A word for programs. It does not change.
    pub(super) code: &'static str,
    pub(super) title: &'static str,
}

impl Problem {
    const fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        Self { status, code, title }
    }

    pub(super) const MALFORMED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "request_malformed",
        "The request is not one that can be passed on",
    );
    pub(super) const METHOD: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_refused",
        "The gateway does not pass on this method",
    );
    pub(super) const UPGRADE: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "upgrade_refused",
        "A request that may have a key cannot be upgraded",
    );
    pub(super) const NO_ROUTE: Self =
        Self::new(StatusCode::NOT_FOUND, "no_route", "The gateway has no upstream for this path");
    pub(super) const BROKE_OFF: Self =
        Self::new(StatusCode::BAD_REQUEST, "request_unreadable", "The request could not be read");
    pub(super) const SLOW: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request did not arrive in time");
    pub(super) const UNREACHABLE: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_unreachable",
        "The upstream cannot be reached; nothing was sent",
    );
    pub(super) const LOST: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_lost",
        "The upstream was lost before it answered; what it did is not known",
    );
    pub(super) const TIMED_OUT: Self = Self::new(
        StatusCode::GATEWAY_TIMEOUT,
        "upstream_timeout",
        "The upstream did not answer in time; what it did is not known",
    );

    /// Those that a client may meet with a key, besides those of the layer.
    pub(super) const PUBLISHED: [Self; 4] = [Self::MALFORMED, Self::UNREACHABLE, Self::LOST, Self::TIMED_OUT];

    /// What does not depend on the request.
    pub(super) fn published(self) -> Value {
        json!({ "status": self.status.as_u16(), "code": self.code, "title": self.title })
    }

    /// The response, with what is wrong with this request in particular.
    pub(super) fn response(self, detail: Option<&str>) -> Response<Returned> {
        let mut problem = json!({
            "type": format!("urn:semel:problem:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "code": self.code,
        });
        if let Some(detail) = detail {
            problem["detail"] = json!(detail);
        }
        let mut response = Response::new(Returned::Own(Some(Bytes::from(problem.to_string()))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The same, as the last one of its connection: what follows may not be what it seems.
    pub(super) fn last(self, detail: &str) -> Response<Returned> {
        let mut response = self.response(Some(detail));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
