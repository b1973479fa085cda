//! The step *reply*: the answer to a caller after the run of an attempt.

use ::http::Response;
use bytes::Bytes;
use http_body::Body;
use tracing::Span;

use crate::engine::policy::Policy;
use crate::engine::{Ran, RunError};
use crate::http::layer::IdempotencyLayer;
use crate::http::reply::outcome::render;
use crate::http::reply::rejection::Rejection;
use crate::http::request::body::{GATHER_KNOWN, ReadAhead};
use crate::http::response::settle::OwnResponse;
use crate::observe;
use crate::words::key::Key;
use crate::words::outcome::Outcome;

/// The response to a caller: the handler's own, if that is the recorded one; else the recorded one,
/// or a refusal.
pub(in crate::http) async fn reply<R: Body, E>(
    layer: &IdempotencyLayer,
    key: &Key,
    ran: Result<Ran<Outcome>, RunError>,
    own: Option<OwnResponse<R, E>>,
    span: &Span,
) -> Result<Response<ReadAhead<R>>, E> {
    match span.in_scope(|| answer(ran, own, layer.once.policy())) {
        Answer::Own(own) => {
            note(span, "first");
            own
        }
        Answer::Recorded { outcome, replayed, own } => {
            let mut response = render(&outcome, replayed);
            if let Some(memory) = &layer.options.memory {
                let body = std::mem::take(response.body_mut());
                let longest = layer.options.whole_within.unwrap_or(GATHER_KNOWN);
                // A handler that records its outcome itself answers with the same body, which has
                // its charge already.
                let charged = match own.filter(|own| *own == body) {
                    Some(own) => Ok(own),
                    None => memory.recorded(key, body, replayed, longest).await,
                };
                match charged {
                    Ok(body) => *response.body_mut() = body,
                    Err(rejection) => return Ok(refuse(layer, span, rejection)),
                }
            }
            note(span, if replayed { "replayed" } else { "first" });
            Ok(response.map(ReadAhead::whole))
        }
        Answer::Refused(rejection) => Ok(refuse(layer, span, rejection)),
    }
}

/// The response to a request that is refused before the claim. There is no span of this crate yet,
/// and the span of the application must not be changed.
pub(in crate::http) fn refuse_early<R: Body>(
    layer: &IdempotencyLayer,
    rejection: Rejection,
) -> Response<ReadAhead<R>> {
    tracing::debug!(answer = rejection.code(), "refused a request before any claim");
    refuse(layer, &Span::none(), rejection)
}

fn refuse<R: Body>(layer: &IdempotencyLayer, span: &Span, rejection: Rejection) -> Response<ReadAhead<R>> {
    note(span, rejection.code());
    layer.options.renderer.render(rejection).map(ReadAhead::whole)
}

/// Counts the answer, and records it in the span of the request.
fn note(span: &Span, answer: &'static str) {
    span.record("answer", answer);
    observe::request(answer);
}

/// The answer to a caller.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum Answer<R: Body, E> {
    /// The handler's own response, untouched.
    Own(Result<Response<ReadAhead<R>>, E>),
    Recorded {
        outcome: Outcome,
        replayed: bool,
        /// The body of the handler's own response, as far as it was read.
        own: Option<Bytes>,
    },
    Refused(Rejection),
}

/// The answer after the run of an attempt. No caller gets an outcome that is not recorded: the
/// handler's own response is passed on if it is the recorded one, or if the key was released or
/// abandoned with it.
fn answer<R: Body, E>(
    ran: Result<Ran<Outcome>, RunError>,
    own: Option<OwnResponse<R, E>>,
    policy: &Policy,
) -> Answer<R, E> {
    match (ran, own) {
        (Ok(Ran { value, replayed: false }), Some(own)) if own.outcome.as_ref() == Some(&value) => {
            Answer::Own(own.result)
        }
        (Ok(Ran { value, .. }), _) if value.status() < 200 => {
            tracing::error!(
                status = value.status(),
                "a recorded outcome has no final status and cannot be replayed"
            );
            Answer::Refused(Rejection::OutcomeUnrecorded)
        }
        (Ok(Ran { value, replayed }), own) => {
            let own = own.and_then(|own| own.result.ok()).map(|response| response.body().read());
            Answer::Recorded { outcome: value, replayed, own }
        }
        (Err(RunError::Failed { .. }), Some(own)) => Answer::Own(own.result),
        (Err(error), _) => Answer::Refused(refusal(&error, policy)),
    }
}

/// The refusal for the caller; details that are only for the operator go to the log.
fn refusal(error: &RunError, policy: &Policy) -> Rejection {
    match error {
        RunError::Unavailable(cause) | RunError::OutcomePending(cause) => {
            tracing::warn!(error = %cause, "{error}");
        }
        RunError::Unrecorded(cause) => tracing::error!(error = %cause, "{error}"),
        RunError::CompletionMissing => tracing::error!("{error}"),
        // The message of a panic may quote the request; `Debug` escapes its line ends, so that they
        // do not end the line of the log.
        RunError::Failed { source, .. } => tracing::error!(error = ?source.to_string(), "the handler failed"),
        _ => {}
    }
    Rejection::of(error, policy)
}
