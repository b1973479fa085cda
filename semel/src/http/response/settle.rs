//! The step *settle*: what the handler's response means for its key, and the outcome in it.

use std::fmt;

use ::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::http::response::Parts;
use ::http::{Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::engine::policy::Policy;
use crate::engine::{Failure, Worked};
use crate::http::layer::options::Options;
use crate::http::reply::rejection::Rejection;
use crate::http::request::body::{ReadAhead, read_response};
use crate::words::outcome::Outcome;
use crate::words::terms::AfterCrash;

/// How a handler's response settles its key.
///
/// A handler decides by putting this value into the extensions of its response; otherwise the policy
/// and the status decide. With axum, it can be part of what a handler returns:
/// `(StatusCode::BAD_GATEWAY, Settle::Release, "try again")`.
///
/// | status | `hold` | `retry` | `transactional` |
/// | --- | --- | --- | --- |
/// | 401, 403, 425, 429, and 503 with `Retry-After`: the request was not processed | release | release | release |
/// | 408 and any other 5xx: the request may have been processed | complete | release | release |
/// | any other 4xx | complete | complete | release |
/// | everything else | complete | complete | complete |
///
/// Under `transactional` the handler completes its key itself, in its transaction; a recorded
/// outcome is the answer, whatever the response says. A response that should complete the key, but
/// without a recorded outcome, is refused as `completion_missing`, and the key is held; a failure
/// without an outcome means that the transaction was rolled back.
///
/// A 408 from within does not mean that the request did not arrive: the layer has read it already.
/// It means that something inside, for example a timeout layer, has cut off the handler, whose
/// progress is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// The response is the outcome: every repeat gets it.
    Complete,
    /// Nothing happened: the next attempt runs.
    Release,
    /// The effects are unknown, for this reason: the key is held.
    Abandon(String),
}

impl Settle {
    /// The settlement that the handler asks for, or else that of the policy and the response.
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
        if releases || is_unprocessed(parts) { Self::Release } else { Self::Complete }
    }
}

/// The handler's own response, on its way to the first caller, if that still waits.
pub(in crate::http) struct OwnResponse<R: Body, E> {
    pub(in crate::http) result: Result<Response<ReadAhead<R>>, E>,
    /// The part of it that is recorded, if it is the outcome.
    pub(in crate::http) outcome: Option<Outcome>,
}

/// The error of a response from a service behind a connection that broke off, with this status.
#[derive(Debug, Error)]
#[error("the answer, {0}, broke off")]
pub(in crate::http) struct BrokeOff(StatusCode);

/// Decides how the handler's result settles its key. The response itself takes another way, to the
/// first caller, because a record does not hold all of it.
pub(in crate::http) async fn settle<R, E>(
    options: &Options,
    policy: &Policy,
    result: Result<Response<R>, E>,
    tell: oneshot::Sender<OwnResponse<R, E>>,
) -> Worked
where
    R: Body<Data = Bytes>,
    E: fmt::Display,
{
    let (own, worked) = match result {
        Ok(response) => settle_response(options, policy, response).await,
        Err(error) => {
            let failure = Failure::unknown(format!("the service failed: {error}"));
            (Some(OwnResponse { result: Err(error), outcome: None }), Err(failure).into())
        }
    };
    if let Some(own) = own {
        // A caller that disconnected does not need the response.
        let _ = tell.send(own);
    }
    worked
}

/// Reads as much of a response as is recorded. A response that breaks off may not be passed on.
async fn settle_response<R, E>(
    options: &Options,
    policy: &Policy,
    response: Response<R>,
) -> (Option<OwnResponse<R, E>>, Worked)
where
    R: Body<Data = Bytes>,
{
    let (parts, body) = response.into_parts();
    let settle = match (parts.extensions.get::<Settle>(), &options.settle) {
        (None, Some(settle)) => settle(&parts),
        _ => None,
    };
    let failure = match settle.unwrap_or_else(|| Settle::of(&parts, policy.after_crash())) {
        // An informational response is not an answer, whatever the handler says: a repeat could not
        // be answered with it.
        Settle::Complete if parts.status.is_informational() => {
            Failure::unknown(format!("the handler answered {}, which is no final status", parts.status))
        }
        Settle::Complete => {
            let (body, whole) = match is_stream(&parts) {
                true => (ReadAhead::passed(body), None),
                false => {
                    let memory = options.memory.as_ref();
                    read_response(body, policy.max_body_bytes(), options.whole_within, memory).await
                }
            };
            if options.whole_within.is_some() && body.is_broken() {
                return (None, Err(Failure::unknown(BrokeOff(parts.status))).into());
            }
            // The charge is held until the store has taken the outcome, whether or not the caller
            // still waits for the response.
            let held = whole.is_some().then(|| body.read());
            let outcome = outcome(options, &parts, whole);
            let result = Ok(Response::from_parts(parts, body));
            let own = OwnResponse { result, outcome: Some(outcome.clone()) };
            return (Some(own), Worked { result: Ok(outcome), held });
        }
        Settle::Release => Failure::nothing_happened(format!("the handler answered {}", parts.status)),
        Settle::Abandon(reason) => Failure::unknown(reason),
    };
    let result = Ok(Response::from_parts(parts, ReadAhead::passed(body)));
    (Some(OwnResponse { result, outcome: None }), Err(failure).into())
}

/// The recorded form of a response. If its headers are over a limit, only its status: the handler
/// has run, and must not run again.
fn outcome(options: &Options, parts: &Parts, body: Option<Bytes>) -> Outcome {
    let bare = || Outcome::new(parts.status.as_u16()).expect("a final status").without_body();
    let whole = bare().with_headers(options.recorded.of(&parts.headers)).and_then(|outcome| match body {
        Some(body) => outcome.with_body(body),
        None => Ok(outcome),
    });
    whole.unwrap_or_else(|error| {
        tracing::warn!(%error, "a response is recorded without its headers and body");
        bare()
    })
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

    fn settled_by(status: u16, headers: &[&'static str], after_crash: AfterCrash) -> Settle {
        let mut response = Response::builder().status(status);
        for name in headers {
            response = response.header(*name, "1");
        }
        Settle::of(&response.body(()).unwrap().into_parts().0, after_crash)
    }

    #[test]
    fn the_policy_and_the_status_decide() {
        let all = [AfterCrash::Hold, AfterCrash::Retry, AfterCrash::Transactional];
        for after_crash in all {
            for status in [200, 201, 204, 302] {
                assert_eq!(settled_by(status, &[], after_crash), Settle::Complete, "{status}");
            }
            for status in [401, 403, 425, 429] {
                assert_eq!(settled_by(status, &[], after_crash), Settle::Release, "{status}");
            }
            assert_eq!(settled_by(503, &["retry-after"], after_crash), Settle::Release);
        }
        for status in [400, 404, 409, 422, 499] {
            assert_eq!(settled_by(status, &[], AfterCrash::Hold), Settle::Complete, "{status}");
            assert_eq!(settled_by(status, &[], AfterCrash::Retry), Settle::Complete, "{status}");
            assert_eq!(settled_by(status, &[], AfterCrash::Transactional), Settle::Release, "{status}");
        }
        for status in [408, 500, 502, 503, 504] {
            assert_eq!(settled_by(status, &[], AfterCrash::Hold), Settle::Complete, "{status}");
            assert_eq!(settled_by(status, &[], AfterCrash::Retry), Settle::Release, "{status}");
            assert_eq!(settled_by(status, &[], AfterCrash::Transactional), Settle::Release, "{status}");
        }
    }

    #[test]
    fn the_handler_has_the_last_word() {
        let mut response = Response::builder().status(429).body(()).unwrap();
        response.extensions_mut().insert(Settle::Complete);
        assert_eq!(Settle::of(&response.into_parts().0, AfterCrash::Retry), Settle::Complete);
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
