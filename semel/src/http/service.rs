//! The line that every request walks: read, claim, run, settle, reply.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;
use tracing::{Instrument, Span, field};

use super::body::ReadAhead;
use super::layer::IdempotencyLayer;
use super::read::{Asked, Read, read};
use super::rejection::Rejection;
use super::reply::{Answer, answer, render};
use super::run::run;
use crate::meter;

/// A service whose requests are safe to retry.
///
/// Requests without a key pass through. See the [module](super) for the others.
#[derive(Debug, Clone)]
pub struct Idempotency<S> {
    layer: IdempotencyLayer,
    inner: S,
}

impl<S> Idempotency<S> {
    /// The service around another.
    pub fn new(layer: IdempotencyLayer, inner: S) -> Self {
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
        // The one that was polled ready is the one to call; the clone takes its place.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        Box::pin(serve(self.layer.clone(), ready, request))
    }
}

async fn serve<S, Q, R>(
    layer: IdempotencyLayer,
    mut inner: S,
    request: Request<Q>,
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
    let Asked { key, intent, request } = match read(&layer.options, request).await {
        Read::Passed(request) => {
            let response = inner.call(request).await?;
            return Ok(response.map(ReadAhead::passed));
        }
        Read::Refused(rejection) => {
            // There is no span of ours yet, and that of the application is not ours to write in.
            meter::request(rejection.code());
            tracing::debug!(answer = rejection.code(), "refused a request before any claim");
            return Ok(layer.options.renderer.render(rejection).map(ReadAhead::whole));
        }
        Read::Asked(asked) => asked,
    };
    let span =
        tracing::info_span!("idempotency", ?key, operation = intent.operation(), answer = field::Empty);
    async {
        let (tell, mut told) = oneshot::channel();
        let work = run(Arc::clone(&layer.options), layer.once.policy().clone(), inner, request, tell);
        let ran = layer.once.run_outcome(&key, &intent, work).await;
        match answer(ran, told.try_recv().ok()) {
            Answer::Own(own) => {
                note("first");
                own
            }
            Answer::Recorded { outcome, replayed } => {
                note(if replayed { "replayed" } else { "first" });
                Ok(render(&outcome, replayed).map(ReadAhead::whole))
            }
            Answer::Refused(rejection) => Ok(refuse(&layer, rejection)),
        }
    }
    .instrument(span)
    .await
}

fn refuse<R: Body>(layer: &IdempotencyLayer, rejection: Rejection) -> Response<ReadAhead<R>> {
    note(rejection.code());
    layer.options.renderer.render(rejection).map(ReadAhead::whole)
}

/// Counts the answer, and notes it in the span of the request.
fn note(answer: &'static str) {
    Span::current().record("answer", answer);
    meter::request(answer);
}
