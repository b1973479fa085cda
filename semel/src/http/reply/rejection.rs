//! Refusals: as values, and as responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::engine::RunError;
use crate::engine::policy::Policy;
use crate::http::request::key::KeyFault;
use crate::http::response::run::BrokeOff;
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

/// The parts that do not depend on the request: status, code, title.
pub(in crate::http) const PROBLEMS: [(StatusCode, &str, &str); 20] = [
    (StatusCode::BAD_REQUEST, "idempotency_key_missing", "An idempotency key is required"),
    (StatusCode::BAD_REQUEST, "idempotency_key_invalid", "The idempotency key is not valid"),
    (StatusCode::BAD_REQUEST, "request_unreadable", "The request could not be read"),
    (StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request did not arrive in time"),
    (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", "The request is too large"),
    (
        StatusCode::CONFLICT,
        "idempotency_key_pending",
        "A request with this idempotency key is being processed",
    ),
    (StatusCode::CONFLICT, "idempotency_outcome_unknown", "The outcome of an earlier attempt is not known"),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "idempotency_key_reused",
        "The idempotency key was used for another request",
    ),
    (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "The request cannot be processed now"),
    (StatusCode::SERVICE_UNAVAILABLE, "outcome_pending", "The outcome is not recorded yet"),
    (StatusCode::INTERNAL_SERVER_ERROR, "handler_failed", "The request failed, and its outcome is not known"),
    (StatusCode::INTERNAL_SERVER_ERROR, "outcome_unrecorded", "The outcome could not be recorded"),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "completion_missing",
        "The service did not record the outcome in its transaction",
    ),
    (StatusCode::INTERNAL_SERVER_ERROR, "scope_unknown", "It is not known whose idempotency key this is"),
    (StatusCode::BAD_GATEWAY, "upstream_broke_off", "The answer broke off, and the outcome is not known"),
    (
        StatusCode::BAD_REQUEST,
        "idempotency_scope_missing",
        "The request does not say whose idempotency key it has",
    ),
    (StatusCode::SERVICE_UNAVAILABLE, "too_many_attempts", "Too many requests are being processed"),
    (StatusCode::SERVICE_UNAVAILABLE, "store_full", "No new idempotency keys are accepted now"),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "idempotency_quota_exceeded",
        "The caller has used up its quota of idempotency keys",
    ),
    (StatusCode::SERVICE_UNAVAILABLE, "memory_exhausted", "There is no room for the request now"),
];

impl Rejection {
    fn problem(&self) -> &'static (StatusCode, &'static str, &'static str) {
        &PROBLEMS[match self {
            Self::KeyMissing => 0,
            Self::KeyInvalid(_) => 1,
            Self::RequestUnreadable => 2,
            Self::RequestTimeout => 3,
            Self::RequestTooLarge(_) => 4,
            Self::KeyPending { .. } => 5,
            Self::OutcomeUnknown(_) => 6,
            Self::KeyReused { .. } => 7,
            Self::StoreUnavailable => 8,
            Self::OutcomePending => 9,
            Self::HandlerFailed { .. } => 10,
            Self::OutcomeUnrecorded => 11,
            Self::CompletionMissing => 12,
            Self::ScopeUnknown => 13,
            Self::AnswerBrokeOff { .. } => 14,
            Self::ScopeMissing { .. } => 15,
            Self::TooManyAttempts => 16,
            Self::StoreFull => 17,
            Self::QuotaExceeded { .. } => 18,
            Self::MemoryExhausted => 19,
        }]
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.problem().0
    }

    /// The code for programs. It never changes.
    pub fn code(&self) -> &'static str {
        self.problem().1
    }

    /// The title for people, the same for every request that is refused for this reason.
    pub fn title(&self) -> &'static str {
        self.problem().2
    }

    /// The advice for this case.
    pub fn detail(&self) -> String {
        let fixed = match self {
            Self::KeyMissing => {
                "Send the header with a value that is new for each operation and the same for its repeats."
            }
            Self::KeyInvalid(fault) => {
                return format!(
                    "The header does not contain exactly one key: {fault}. This request did nothing. Send one key of 1 to \
                     255 printable ASCII characters."
                );
            }
            Self::RequestUnreadable => {
                "The body ended too early. This request did nothing; send it again with the same key."
            }
            Self::RequestTimeout => {
                "The body did not arrive in time. This request did nothing; send it again with the same key."
            }
            Self::RequestTooLarge(limit) => {
                return format!(
                    "The body is over the limit of {limit} bytes. This request did nothing. Send less, or ask the \
                     operator to raise the limit."
                );
            }
            Self::KeyPending { .. } => "Send the same request with the same key later.",
            Self::OutcomeUnknown(_)
            | Self::HandlerFailed { held: true }
            | Self::AnswerBrokeOff { held: true } => {
                "An attempt was lost, and it is not known whether it took effect. A new key is not safe: it could happen \
                 twice. The key is held until an operator or the service settles it."
            }
            Self::HandlerFailed { held: false } | Self::AnswerBrokeOff { held: false } => {
                "An attempt was lost, and it is not known whether it took effect. A new key is not safe: it could happen \
                 twice. Send the same request with the same key later."
            }
            Self::KeyReused { .. } => {
                "Use a new key for a new request. The first request stands, and repeats of it are answered."
            }
            Self::StoreUnavailable | Self::MemoryExhausted => {
                "This request did nothing; an earlier one with the same key may have. Send the same request with the \
                 same key later."
            }
            Self::OutcomePending => {
                "The request was carried out, or may have been. Send the same request with the same key later to learn \
                 its outcome."
            }
            Self::OutcomeUnrecorded => {
                "The request was carried out, but its outcome could not be recorded. A new key is not safe: it would \
                 happen twice. The key is held until an operator or the service settles it."
            }
            Self::CompletionMissing => {
                "The request was carried out, but the service did not record its outcome in the transaction of its \
                 effect, as its policy `transactional` requires. A new key is not safe: it would happen twice. The key is \
                 held until an operator or the service settles it."
            }
            Self::ScopeMissing { expected, has_cookies } => {
                let cookies = match has_cookies {
                    true => {
                        " Cookies do not count, unless the operator names the one that identifies callers (`cookie:NAME`)."
                    }
                    false => "",
                };
                return format!(
                    "The request has none of the credentials that distinguish callers: {expected}. This request did \
                     nothing; send it again with one of them.{cookies} The operator can name other headers \
                     (`credentials:NAME`), or let all callers count as one (`--anonymous share` of the gateway, \
                     `with_anonymous_callers` of the layer)."
                );
            }
            Self::ScopeUnknown => "The service did not identify the caller. This request did nothing.",
            Self::TooManyAttempts => {
                "Too many requests are being processed. This request did nothing; send it again with the same key later."
            }
            Self::StoreFull => {
                "The store of outcomes is full, so no new key is accepted. This request did nothing; send it again with \
                 the same key later."
            }
            Self::QuotaExceeded { .. } => {
                "Too many keys of this caller are new or not settled. This request did nothing; send it again with the \
                 same key later."
            }
        };
        fixed.to_owned()
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

    /// The problem as an object of RFC 9457. `page` describes the problems; the code is its
    /// fragment.
    pub fn problem_details(&self, page: Option<&str>) -> Value {
        let kind = match page {
            Some(page) => format!("{page}#{}", self.code()),
            None => format!("urn:semel:problem:{}", self.code()),
        };
        let mut problem = Map::from_iter([
            ("type".to_owned(), json!(kind)),
            ("title".to_owned(), json!(self.title())),
            ("status".to_owned(), json!(self.status().as_u16())),
            ("detail".to_owned(), json!(self.detail())),
            ("code".to_owned(), json!(self.code())),
        ]);
        match self {
            Self::KeyPending { since: Some(since), .. } | Self::KeyReused { since } => {
                problem.insert("since".to_owned(), json!(since.to_string()));
            }
            Self::OutcomeUnknown(held) => {
                problem.insert("attempt".to_owned(), json!(held.attempt));
                problem.insert("since".to_owned(), json!(held.since.to_string()));
            }
            _ => {}
        }
        Value::Object(problem)
    }
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
}

/// The application's own response to a refusal.
type Own = dyn Fn(&Rejection) -> Response<Bytes> + Send + Sync;

/// The form of refusals.
#[derive(Clone, Default)]
pub(in crate::http) struct Renderer {
    pub(in crate::http) page: Option<Arc<str>>,
    pub(in crate::http) own: Option<Arc<Own>>,
}

impl Renderer {
    /// The response to a refused request. It forbids caching, and has the refusal in its
    /// extensions.
    pub(in crate::http) fn render(&self, rejection: Rejection) -> Response<Bytes> {
        let mut response = match &self.own {
            Some(own) => own(&rejection),
            None => self.problem(&rejection),
        };
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(rejection);
        response
    }

    fn problem(&self, rejection: &Rejection) -> Response<Bytes> {
        let problem = rejection.problem_details(self.page.as_deref());
        let mut response = Response::new(Bytes::from(problem.to_string()));
        *response.status_mut() = rejection.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = rejection.retry_after() {
            headers.insert(RETRY_AFTER, whole_seconds(after).into());
        }
        response
    }
}

/// The time in whole seconds, rounded up, and at least one.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renderer").field("page", &self.page).field("own", &self.own.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::lease::Fence;

    fn every() -> Vec<Rejection> {
        let held = Held { since: Timestamp::from_micros(0), fence: Fence::new(7), attempt: 2 };
        vec![
            Rejection::KeyMissing,
            Rejection::KeyInvalid(KeyFault::Repeated),
            Rejection::RequestUnreadable,
            Rejection::RequestTimeout,
            Rejection::RequestTooLarge(10),
            Rejection::KeyPending { since: None, retry_after: Duration::from_millis(1_500) },
            Rejection::OutcomeUnknown(held),
            Rejection::KeyReused { since: Timestamp::from_micros(0) },
            Rejection::StoreUnavailable,
            Rejection::OutcomePending,
            Rejection::HandlerFailed { held: true },
            Rejection::OutcomeUnrecorded,
            Rejection::CompletionMissing,
            Rejection::ScopeUnknown,
            Rejection::AnswerBrokeOff { held: true },
            Rejection::ScopeMissing { expected: "authorization".to_owned(), has_cookies: false },
            Rejection::TooManyAttempts,
            Rejection::StoreFull,
            Rejection::QuotaExceeded { retry_after: Duration::from_secs(3) },
            Rejection::MemoryExhausted,
        ]
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own_that_is_published() {
        let codes: Vec<_> = every().iter().map(Rejection::code).collect();
        assert_eq!(codes, PROBLEMS.map(|(_, code, _)| code));
    }

    #[test]
    fn a_refusal_is_a_problem_that_no_cache_keeps() {
        for rejection in every() {
            let response = Renderer::default().render(rejection.clone());
            assert_eq!(response.status(), rejection.status());
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            assert_eq!(response.extensions().get(), Some(&rejection));
            let problem: Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(problem["code"], rejection.code());
            assert_eq!(problem["status"], rejection.status().as_u16());
        }
    }

    #[test]
    fn a_held_key_says_which_attempt_and_since_when() {
        let problem = every()[6].problem_details(Some("https://example.com/problems"));
        assert_eq!(problem["type"], "https://example.com/problems#idempotency_outcome_unknown");
        assert_eq!(problem["attempt"], 2);
        assert_eq!(problem["since"], "1970-01-01T00:00:00.000000Z");
        assert!(problem["detail"].as_str().unwrap().contains("A new key is not safe"));
    }

    #[test]
    fn retry_after_is_whole_seconds() {
        let of = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([of(0), of(1), of(1_000), of(1_001)], [1, 1, 1, 2]);
    }
}
