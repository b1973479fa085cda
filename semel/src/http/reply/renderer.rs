//! Refusals as responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::Response;
use ::http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use bytes::Bytes;

use crate::http::reply::rejection::Rejection;

/// The application's own response to a refusal.
type RenderOwn = dyn Fn(&Rejection) -> Response<Bytes> + Send + Sync;

/// The form of refusals.
#[derive(Clone, Default)]
pub(in crate::http) struct Renderer {
    pub(in crate::http) page: Option<Arc<str>>,
    pub(in crate::http) own: Option<Arc<RenderOwn>>,
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
        let details = rejection.problem_details(self.page.as_deref());
        let mut response = rejection.problem_type().response(&details);
        if let Some(after) = rejection.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, whole_seconds(after).into());
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
    use ::http::header::CONTENT_TYPE;
    use serde_json::Value;

    use super::*;
    use crate::http::reply::problem::ProblemType;
    use crate::http::request::key::KeyFault;
    use crate::protocol::answer::Held;
    use crate::words::lease::Fence;
    use crate::words::time::Timestamp;

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
        assert_eq!(codes, ProblemType::ALL.map(|problem| problem.code()));
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
