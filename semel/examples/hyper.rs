//! The layer around a plain service of hyper, without axum.
//!
//! ```text
//! cargo run -p semel --example hyper
//! curl -i localhost:3000/charges -H 'idempotency-key: "a1"' -d 42
//! ```

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use semel::http::{Anonymous, IdempotencyLayer, ReadAhead};
use semel::{Lease, MemoryStore};
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    // Callers without credentials are one caller here; unless that is said, they are refused.
    let layer = IdempotencyLayer::new(MemoryStore::new()).with_anonymous_callers(Anonymous::Share);
    let service = layer.layer(service_fn(charge));
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("a connection failed: {error}");
            }
        });
    }
}

/// The body has been read already if there is a key, and the lease is among the extensions.
async fn charge(request: Request<ReadAhead<Incoming>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let attempt = request.extensions().get::<Lease>().map(Lease::attempt);
    let said = match request.into_body().collect().await {
        Ok(cents) => format!("charged {} cents, attempt {attempt:?}\n", cents.to_bytes().escape_ascii()),
        Err(error) => format!("could not read the request: {error}\n"),
    };
    Ok(Response::new(Full::new(Bytes::from(said))))
}

#[cfg(test)]
mod tests {
    use testkit::http::charges_once;

    use super::*;

    #[tokio::test]
    async fn a_charge_runs_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        charges_once(address, "a1").await;
    }
}
