//! Whole requests through the layer for HTTP, over the memory store.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use semel::MemoryStore;
use semel::http::{Anonymous, Idempotency, IdempotencyLayer};
use tokio::runtime::Builder;
use tower_service::Service;

use crate::MOST;
use crate::store::BEFORE;

/// Requests with a new key each: the handler runs, and its answer is recorded.
pub(crate) fn first(times: usize) -> Result<()> {
    requests(times, |number| number)
}

/// Requests with one key: all but one are answered from the record.
pub(crate) fn replay(times: usize) -> Result<()> {
    requests(times, |_| 0)
}

fn requests(times: usize, key: fn(usize) -> usize) -> Result<()> {
    let layer = IdempotencyLayer::new(MemoryStore::new()).with_anonymous_callers(Anonymous::Share);
    let mut service = Idempotency::new(layer, Handler);
    let requests: Vec<_> = (0..BEFORE + MOST).map(|number| request(key(number))).collect::<Result<_>>()?;
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        for request in requests.into_iter().take(BEFORE + times) {
            let response = service.call(request).await?;
            ensure!(response.status() == 201, "{} instead of the handler's answer", response.status());
        }
        Ok(())
    })
}

/// The number is the end of a UUID.
fn request(number: usize) -> Result<Request<Full<Bytes>>> {
    Ok(Request::post("/charges")
        .header("content-type", "application/json")
        .header("idempotency-key", format!("8e03978e-40d5-43dd-bc93-{number:012}"))
        .body(Full::new(Bytes::from_static(&[b'x'; 200])))?)
}

/// Answers at once with a small body.
#[derive(Clone)]
struct Handler;

impl<B> Service<Request<B>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let mut response = Response::new(Full::new(Bytes::from_static(&[b'x'; 200])));
        *response.status_mut() = http::StatusCode::CREATED;
        ready(Ok(response))
    }
}
