//! The gateway's own refusals, as problem details (RFC 9457).

use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use semel::http::ProblemType;
use serde_json::Value;

use crate::gateway::upstream::body::Returned;

/// Marks a response of the gateway itself.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Own;

/// The reason why a request got no answer of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) struct Problem {
    kind: ProblemType,
    /// The advice to the client.
    advice: &'static str,
}

impl Problem {
    const fn new(status: StatusCode, code: &'static str, title: &'static str, advice: &'static str) -> Self {
        Self::of(ProblemType::new(status, code, title), advice)
    }

    /// A problem that the layer has as well, with the advice of the gateway.
    const fn of(kind: ProblemType, advice: &'static str) -> Self {
        Self { kind, advice }
    }

    pub(in crate::gateway) const MALFORMED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "request_malformed",
        "The request is not one that can be passed on",
        "This request did nothing; mend it, and send it again.",
    );
    pub(in crate::gateway) const TOO_MANY_FIELDS: Self = Self::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "too_many_fields",
        "The head of the request has too many fields",
        "This request did nothing; send it with 128 header fields at most.",
    );
    pub(in crate::gateway) const METHOD: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_refused",
        "The gateway does not pass on this method",
        "This request did nothing; use another method.",
    );
    pub(in crate::gateway) const UNCOVERED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "idempotency_route_uncovered",
        "The idempotency key would not count here",
        "This request did nothing. Check the path for its spelling; or send the request without a key, if a repeat does no harm. The \
         operator can cover the path with a route, or pass such requests on with `uncovered = \"pass\"`.",
    );
    pub(in crate::gateway) const UPGRADE: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "upgrade_refused",
        "A request that may have a key cannot be upgraded",
        "This request did nothing; send it without `Upgrade`.",
    );
    pub(in crate::gateway) const NO_ROUTE: Self = Self::new(
        StatusCode::NOT_FOUND,
        "no_route",
        "The gateway has no upstream for this path",
        "This request did nothing; check its path.",
    );
    pub(in crate::gateway) const BROKE_OFF: Self = Self::of(
        ProblemType::REQUEST_UNREADABLE,
        "The body ended too early, or its chunks are malformed. Part of it may have reached the service.",
    );
    pub(in crate::gateway) const SLOW: Self = Self::of(
        ProblemType::REQUEST_TIMEOUT,
        "The body did not go on. Part of it may have reached the service.",
    );
    pub(in crate::gateway) const UNREACHABLE: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_unreachable",
        "The upstream cannot be reached; nothing was sent",
        "Send the same request later, with the same key if it has one.",
    );
    pub(in crate::gateway) const LOST: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_lost",
        "The upstream was lost before it answered; what it did is not known",
        "Send the same request later with the same key to learn its outcome. A new key, or none, could make it happen twice.",
    );
    pub(in crate::gateway) const UNREADABLE: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "upstream_malformed",
        "The answer of the upstream cannot be passed on; what it did is not known",
        "Its head is not HTTP or too large, or its framing is neither one length nor chunks. Send the same request later with the same \
         key to learn its outcome. A new key, or none, could make it happen twice.",
    );
    pub(in crate::gateway) const BUSY: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "gateway_busy",
        "The gateway passes on as many requests as it may; nothing was sent",
        "This request did nothing. Send it again later.",
    );
    pub(in crate::gateway) const TIMED_OUT: Self = Self::new(
        StatusCode::GATEWAY_TIMEOUT,
        "upstream_timeout",
        "The upstream did not answer in time; what it did is not known",
        "Send the same request later with the same key to learn its outcome. A new key, or none, could make it happen twice.",
    );

    pub(in crate::gateway) const SCOPE_MISSING: Self = Self::of(
        ProblemType::SCOPE_MISSING,
        "Something in front of the gateway has to set it. This request did nothing.",
    );
    pub(in crate::gateway) const TOKEN_MISSING: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "token_missing",
        "A request with a key needs a bearer token",
        "This request did nothing; send it with `Authorization: Bearer` and a token.",
    );
    pub(in crate::gateway) const TOKEN_INVALID: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "token_invalid",
        "The bearer token is not valid here",
        "This request did nothing; send it again with the same key and another token.",
    );
    pub(in crate::gateway) const KEYS_UNAVAILABLE: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "token_keys_unavailable",
        "The token cannot be verified now",
        "This request did nothing; send it again with the same key later.",
    );

    /// The problems that a request with a key may get, in addition to those of the layer.
    pub(in crate::gateway) const PUBLISHED: [Self; 8] = [
        Self::MALFORMED,
        Self::UNCOVERED,
        Self::UPGRADE,
        Self::BUSY,
        Self::UNREACHABLE,
        Self::LOST,
        Self::UNREADABLE,
        Self::TIMED_OUT,
    ];
    /// The additional problems where the gateway verifies tokens.
    pub(in crate::gateway) const OF_TOKENS: [Self; 3] =
        [Self::TOKEN_MISSING, Self::TOKEN_INVALID, Self::KEYS_UNAVAILABLE];

    /// The part that does not depend on the request.
    pub(in crate::gateway) fn published(self) -> Value {
        self.kind.published()
    }

    /// The response, with a detail about this request.
    pub(in crate::gateway) fn response(self, detail: Option<&str>) -> Response<Returned> {
        let detail = match detail {
            Some(detail) => format!("{detail}. {}", self.advice),
            None => self.advice.to_owned(),
        };
        let details = self.kind.details(&detail, None);
        let mut response = self.kind.response(&details).map(|body| Returned::Own(Some(body)));
        response.extensions_mut().insert(Own);
        response
    }

    /// The same response with `Retry-After`, for a client that should try again soon.
    pub(in crate::gateway) fn for_now(self) -> Response<Returned> {
        let mut response = self.response(None);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// The same response as the last one of its connection, because the following bytes may be
    /// misread.
    pub(in crate::gateway) fn last(self, detail: &str) -> Response<Returned> {
        let mut response = self.response(Some(detail));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
