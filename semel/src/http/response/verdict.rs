//! What an answer of the handler does to its key.

use ::http::StatusCode;
use ::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::http::response::Parts;

use crate::http::reply::rejection::Rejection;
use crate::words::terms::AfterCrash;

/// What an answer of the handler does to its key.
///
/// A handler says it itself by putting one into the extensions of its response; else the policy and the status
/// decide. With axum, it can be part of what a handler returns: `(StatusCode::BAD_GATEWAY, Verdict::Release, "try again")`.
///
/// | status | `hold` | `retry` | `transactional` |
/// | --- | --- | --- | --- |
/// | 401, 403, 425, 429, and 503 with `Retry-After`: it was not processed | release | release | release |
/// | 408 and any other 5xx: it may have been | record | release | release |
/// | any other 4xx | record | record | release |
/// | everything else | record | record | record |
///
/// Under `transactional` the handler records its outcome itself, in its transaction; one that is there is the answer,
/// whatever is said here. An answer to be recorded whose outcome is not there is refused as `completion_missing`, and the
/// key is held; a failure without one says that the transaction was rolled back.
///
/// A 408 from within does not say that the request did not arrive: the layer has read it before. It says that
/// somebody has cut off the handler, a timeout layer say, and nobody knows how far it had got.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is the outcome: every repeat gets it.
    Record,
    /// Nothing happened: the next attempt runs.
    Release,
    /// What happened is not known, for this reason: the key is held.
    Abandon(String),
}

impl Verdict {
    /// What the handler said, or what the policy makes of its answer.
    pub(in crate::http) fn of(parts: &Parts, after_crash: AfterCrash) -> Self {
        if let Some(said) = parts.extensions.get::<Self>() {
            return said.clone();
        }
        if let Some(rejection) = parts.extensions.get::<Rejection>() {
            return match rejection.nothing_ran() {
                true => Self::Release,
                false => Self::Abandon(format!("a layer further in refused it: {}", rejection.code())),
            };
        }
        if parts.status.is_informational() {
            return Self::Abandon(format!("the handler answered {}", parts.status));
        }
        let failed = parts.status.is_server_error() || parts.status == StatusCode::REQUEST_TIMEOUT;
        let releases = match after_crash {
            AfterCrash::Hold => false,
            AfterCrash::Retry => failed,
            AfterCrash::Transactional => failed || parts.status.is_client_error(),
        };
        if releases || is_unprocessed(parts) { Self::Release } else { Self::Record }
    }
}

/// Whether the status says that the request was turned away before anything was done.
fn is_unprocessed(parts: &Parts) -> bool {
    match parts.status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => parts.headers.contains_key(RETRY_AFTER),
        _ => false,
    }
}

/// Whether a response is a stream by its type: what it holds is not waited for.
pub(in crate::http) fn is_stream(parts: &Parts) -> bool {
    let streams = [
        "text/event-stream",
        "multipart/x-mixed-replace",
        "application/grpc",
        "application/x-ndjson",
        "application/json-seq",
    ];
    let kind = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    kind.is_some_and(|kind| streams.iter().any(|stream| kind.starts_with(stream.as_bytes())))
}

#[cfg(test)]
mod tests {
    use ::http::Response;

    use super::*;

    fn verdict(status: u16, headers: &[&'static str], after_crash: AfterCrash) -> Verdict {
        let mut response = Response::builder().status(status);
        for name in headers {
            response = response.header(*name, "1");
        }
        Verdict::of(&response.body(()).unwrap().into_parts().0, after_crash)
    }

    #[test]
    fn the_policy_and_the_status_decide() {
        let all = [AfterCrash::Hold, AfterCrash::Retry, AfterCrash::Transactional];
        for after_crash in all {
            for status in [200, 201, 204, 302] {
                assert_eq!(verdict(status, &[], after_crash), Verdict::Record, "{status}");
            }
            for status in [401, 403, 425, 429] {
                assert_eq!(verdict(status, &[], after_crash), Verdict::Release, "{status}");
            }
            assert_eq!(verdict(503, &["retry-after"], after_crash), Verdict::Release);
        }
        for status in [400, 404, 409, 422, 499] {
            assert_eq!(verdict(status, &[], AfterCrash::Hold), Verdict::Record, "{status}");
            assert_eq!(verdict(status, &[], AfterCrash::Retry), Verdict::Record, "{status}");
            assert_eq!(verdict(status, &[], AfterCrash::Transactional), Verdict::Release, "{status}");
        }
        for status in [408, 500, 502, 503, 504] {
            assert_eq!(verdict(status, &[], AfterCrash::Hold), Verdict::Record, "{status}");
            assert_eq!(verdict(status, &[], AfterCrash::Retry), Verdict::Release, "{status}");
            assert_eq!(verdict(status, &[], AfterCrash::Transactional), Verdict::Release, "{status}");
        }
    }

    #[test]
    fn the_handler_has_the_last_word() {
        let mut response = Response::builder().status(429).body(()).unwrap();
        response.extensions_mut().insert(Verdict::Record);
        assert_eq!(Verdict::of(&response.into_parts().0, AfterCrash::Retry), Verdict::Record);
    }

    #[test]
    fn streams_are_known_by_their_type() {
        let of = |kind: &str| {
            is_stream(&Response::builder().header("content-type", kind).body(()).unwrap().into_parts().0)
        };
        assert!(of("text/event-stream") && of("Text/Event-Stream; charset=utf-8"));
        assert!(!of("text/html"));
    }
}
