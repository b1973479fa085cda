//! The line of steps that every request follows: read, claim, run, settle, reply.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::request::Parts;
use ::http::{Request, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;
use tracing::{Instrument, Span, field};

use super::layer::IdempotencyLayer;
use crate::fault;
use crate::http::reply::rejection::Rejection;
use crate::http::reply::{Answer, answer, render};
use crate::http::request::body::{GATHER_KNOWN, ReadAhead};
use crate::http::request::memory::Memory;
use crate::http::request::read::{Asked, Named, key_of, known, read, unkeyed};
use crate::http::response::run::run;
use crate::observe;
use crate::words::lease::Lease;

/// A service whose requests are safe to retry.
///
/// Requests without a key pass through. The [module](super) describes the treatment of all other
/// requests.
#[derive(Debug, Clone)]
pub struct Idempotency<S> {
    layer: IdempotencyLayer,
    inner: S,
}

impl<S> Idempotency<S> {
    /// The service around another.
    ///
    /// # Panics
    /// If a setting of the layer breaks a limit; see [`IdempotencyLayer::check`].
    pub fn new(layer: IdempotencyLayer, inner: S) -> Self {
        layer.check().unwrap_or_else(|error| panic!("{error}"));
        Self { layer, inner }
    }
}

impl<S, Q, R> Service<Request<Q>> for Idempotency<S>
where
    S: Service<Request<ReadAhead<Q>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: fmt::Display + Send + 'static,
    Q: Body<Data = Bytes> + Send + 'static,
    Q::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<ReadAhead<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The service that was polled ready is the one to call; the clone takes its place.
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        let (parts, body) = request.into_parts();
        let key = match parts.extensions.get::<Lease>() {
            // A layer further out has claimed a key for this request. A second claim would wait for
            // the first for ever.
            Some(_) => Ok(None),
            None => key_of(&self.layer, &parts),
        };
        match key {
            Ok(Some(key)) => Box::pin(serve(self.layer.clone(), ready, key, Box::new(parts), body)),
            Ok(None) => {
                let response = ready.call(unkeyed(&self.layer.options, parts, body));
                Box::pin(async { Ok(response.await?.map(ReadAhead::passed)) })
            }
            Err(rejection) => {
                let refused = refuse_early(&self.layer, rejection);
                Box::pin(async { Ok(refused) })
            }
        }
    }
}

async fn serve<S, Q, R>(
    layer: IdempotencyLayer,
    inner: S,
    named: Named,
    parts: Box<Parts>,
    body: Q,
) -> Result<Response<ReadAhead<R>>, S::Error>
where
    S: Service<Request<ReadAhead<Q>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: fmt::Display + Send + 'static,
    Q: Body<Data = Bytes> + Send + 'static,
    Q::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let key = match known(&layer, named, &parts).await {
        Ok(key) => key,
        Err(rejection) => return Ok(refuse_early(&layer, rejection)),
    };
    let Asked { intent, parts, body } = match read(&layer.options, parts, body).await {
        Ok(asked) => asked,
        Err(rejection) => return Ok(refuse_early(&layer, rejection)),
    };
    let span =
        tracing::info_span!("idempotency", ?key, operation = intent.operation(), answer = field::Empty);
    let (tell, mut told) = oneshot::channel();
    let work = run(Arc::clone(&layer.options), layer.once.clone(), inner, parts, body, tell, &span);
    let let_go = layer.options.memory.as_ref().map(Memory::let_go);
    let ran = layer.once.run_here(&key, &intent, work, let_go).instrument(span.clone()).await;
    fault::reach("before_reply");
    match span.in_scope(|| answer(ran, told.try_recv().ok(), layer.once.policy())) {
        Answer::Own(own) => {
            note(&span, "first");
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
                    None => memory.recorded(&key, body, replayed, longest).await,
                };
                match charged {
                    Ok(body) => *response.body_mut() = body,
                    Err(rejection) => return Ok(refuse(&layer, &span, rejection)),
                }
            }
            note(&span, if replayed { "replayed" } else { "first" });
            Ok(response.map(ReadAhead::whole))
        }
        Answer::Refused(rejection) => Ok(refuse(&layer, &span, rejection)),
    }
}

/// Before the claim there is no span of this crate, and the span of the application must not be
/// changed.
fn refuse_early<R: Body>(layer: &IdempotencyLayer, rejection: Rejection) -> Response<ReadAhead<R>> {
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
