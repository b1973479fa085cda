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
use tracing::{Instrument, field};

use super::layer::IdempotencyLayer;
use crate::engine::{Ran, RunError, Work, Worked};
use crate::fault;
use crate::http::reply::answer::{refuse_early, reply};
use crate::http::request::body::ReadAhead;
use crate::http::request::memory::Memory;
use crate::http::request::read::{Asked, Named, key_of, read, unkeyed};
use crate::http::response::run::run;
use crate::http::response::settle::settle;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

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

/// The steps of a request with a key: read, claim, run, settle, reply.
///
/// The engine claims the key. Only if that is granted, it runs the handler and settles the key: the
/// closure is the work that it is given.
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
    let Asked { key, intent, parts, body } = match read(&layer, named, parts, body).await {
        Ok(asked) => asked,
        Err(rejection) => return Ok(refuse_early(&layer, rejection)),
    };
    let span =
        tracing::info_span!("idempotency", ?key, operation = intent.operation(), answer = field::Empty);
    let (tell, mut told) = oneshot::channel();
    let (options, once, within) = (Arc::clone(&layer.options), layer.once.clone(), span.clone());
    let work = Box::new(move |lease| -> BoxFuture<'static, Worked> {
        let work = async move {
            let result = run(inner, parts, body, lease).await;
            settle(&options, once.policy(), result, tell).await
        };
        Box::pin(work.instrument(within))
    });
    let ran = claim(&layer, &key, &intent, work).instrument(span.clone()).await;
    fault::reach("before_reply");
    reply(&layer, &key, ran, told.try_recv().ok(), &span).await
}

/// Claims the key, and has the work run and settled if the claim is granted; otherwise returns what
/// the key has already. A repeat no longer waits for a running attempt when memory is short.
async fn claim(
    layer: &IdempotencyLayer,
    key: &Key,
    intent: &Intent,
    work: Work,
) -> Result<Ran<Outcome>, RunError> {
    let let_go = layer.options.memory.as_ref().map(Memory::let_go);
    layer.once.run_here(key, intent, work, let_go).await
}
