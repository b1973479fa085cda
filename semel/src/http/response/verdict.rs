//! The effect of a handler's response on its key.

use ::http::StatusCode;
use ::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::http::response::Parts;

use crate::http::reply::rejection::Rejection;
use crate::words::terms::AfterCrash;

/// The effect of a handler's response on its key.
///
/// A handler decides by putting a verdict into the extensions of its response; otherwise the policy
/// and the status decide. With axum, it can be part of what a handler returns:
/// `(StatusCode::BAD_GATEWAY, Verdict::Release, "try again")`.
///
/// | status | `hold` | `retry` | `transactional` |
/// | --- | --- | --- | --- |
/// | 401, 403, 425, 429, and 503 with `Retry-After`: the request was not processed | release | release | release |
/// | 408 and any other 5xx: the request may have been processed | record | release | release |
/// | any other 4xx | record | record | release |
/// | everything else | record | record | record |
///
/// Under `transactional` the handler records its outcome itself, in its transaction; a recorded
/// outcome is the answer, whatever the verdict. A response with the verdict to record, but without
/// a recorded outcome, is refused as `completion_missing`, and the key is held; a failure without
/// an outcome means that the transaction was rolled back.
///
/// A 408 from within does not mean that the request did not arrive: the layer has read it already.
/// It means that something inside, for example a timeout layer, has cut off the handler, whose
/// progress is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The response is the outcome: every repeat gets it.
    Record,
    /// Nothing happened: the next attempt runs.
    Release,
    /// The effects are unknown, for this reason: the key is held.
    Abandon(String),
}

impl Verdict {
    /// The handler's own verdict, or the policy's verdict on its response.
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

/// Returns `true` if the status means that the request was refused before anything was done.
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

/// Returns `true` if a response is a stream by its type: the layer does not wait for its content.
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
