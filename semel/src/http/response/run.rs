//! The run of the handler, and the end that its response means for the attempt.

use std::fmt;
use std::sync::Arc;

use ::http::response::Parts;
use ::http::{Request, Response, StatusCode, request};
use bytes::Bytes;
use http_body::Body;
use thiserror::Error;
use tokio::sync::oneshot;
use tower_service::Service;
use tracing::{Instrument, Span};

use crate::engine::policy::Policy;
use crate::engine::{Failure, Once, Work, Worked};
use crate::http::layer::Options;
use crate::http::request::body::{ReadAhead, read_response};
use crate::http::response::verdict::{Verdict, is_stream};
use crate::words::outcome::Outcome;

/// The handler's own response, on its way to the first caller, if that still waits.
pub(in crate::http) struct Own<R: Body, E> {
    pub(in crate::http) result: Result<Response<ReadAhead<R>>, E>,
    /// The part of it that is recorded, if it is the outcome.
    pub(in crate::http) outcome: Option<Outcome>,
}

/// The error of a response from a service behind a connection that broke off, with this status.
#[derive(Debug, Error)]
#[error("the answer, {0}, broke off")]
pub(in crate::http) struct BrokeOff(StatusCode);

/// The work of an attempt: the handler gets the request with its lease, and its response is judged.
/// The response itself takes another way, because a record does not hold all of it.
pub(in crate::http) fn run<S, Q, R>(
    options: Arc<Options>,
    once: Once,
    mut inner: S,
    mut parts: Box<request::Parts>,
    body: ReadAhead<Q>,
    tell: oneshot::Sender<Own<R, S::Error>>,
    span: &Span,
) -> Work
where
    S: Service<Request<ReadAhead<Q>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: fmt::Display + Send + 'static,
    Q: Body<Data = Bytes> + Send + 'static,
    Q::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let span = span.clone();
    Box::new(move |lease| {
        parts.extensions.insert(lease);
        let work = async move {
            let (own, worked) = match inner.call(Request::from_parts(*parts, body)).await {
                Ok(response) => settle(&options, once.policy(), response).await,
                Err(error) => {
                    let failure = Failure::unknown(format!("the service failed: {error}"));
                    (Some(Own { result: Err(error), outcome: None }), Err(failure).into())
                }
            };
            if let Some(own) = own {
                // A caller that disconnected does not need the response.
                let _ = tell.send(own);
            }
            worked
        };
        Box::pin(work.instrument(span))
    })
}

/// Judges a response, and reads as much of it as is recorded. A response that breaks off may not be
/// passed on.
async fn settle<R, E>(
    options: &Options,
    policy: &Policy,
    response: Response<R>,
) -> (Option<Own<R, E>>, Worked)
where
    R: Body<Data = Bytes>,
{
    let (parts, body) = response.into_parts();
    let judged = options.judge.as_ref().filter(|_| parts.extensions.get::<Verdict>().is_none());
    let verdict = judged.and_then(|judge| judge(&parts));
    let ending = match verdict.unwrap_or_else(|| Verdict::of(&parts, policy.after_crash())) {
        // An informational response is not an answer, whatever the handler's verdict: a repeat
        // could not be answered with it.
        Verdict::Record if parts.status.is_informational() => {
            Failure::unknown(format!("the handler answered {}, which is no final status", parts.status))
        }
        Verdict::Record => {
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
            let own = Own { result, outcome: Some(outcome.clone()) };
            return (Some(own), Worked { result: Ok(outcome), held });
        }
        Verdict::Release => Failure::nothing_happened(format!("the handler answered {}", parts.status)),
        Verdict::Abandon(reason) => Failure::unknown(reason),
    };
    let result = Ok(Response::from_parts(parts, ReadAhead::passed(body)));
    (Some(Own { result, outcome: None }), Err(ending).into())
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
