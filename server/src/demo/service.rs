//! The service that the demo protects: it takes payments and ignores keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// The response time of the bank.
const BANK: Duration = Duration::from_millis(50);

/// The body of a request.
#[derive(Serialize, Deserialize)]
pub(super) struct Payment {
    pub(super) to: String,
    pub(super) cents: u32,
}

/// The body of a response.
#[derive(Serialize, Deserialize)]
pub(super) struct Receipt {
    pub(super) receipt: usize,
}

/// The bank behind the service, where a second run would cost money.
#[derive(Default)]
pub(super) struct Bank {
    charges: AtomicUsize,
    breaks_down: AtomicBool,
}

impl Bank {
    fn charge(&self) -> Receipt {
        Receipt { receipt: self.charges.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// The number of charges so far.
    pub(super) fn charges(&self) -> usize {
        self.charges.load(Ordering::Relaxed)
    }

    /// Makes the service fail once, after it has charged.
    pub(super) fn break_down(&self) {
        self.breaks_down.store(true, Ordering::Relaxed);
    }
}

/// Serves payments on a free port, for as long as this process lives.
///
/// # Errors
/// If there is no free port.
pub(super) async fn serve(bank: Arc<Bank>) -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.context("there is no free port")?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let bank = Arc::clone(&bank);
            tokio::spawn(async move {
                let pay = service_fn(|request| pay(Arc::clone(&bank), request));
                // A broken connection is part of the story.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(io), pay).await;
            });
        }
    });
    Ok(address)
}

async fn pay(bank: Arc<Bank>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
    if (request.method(), request.uri().path()) != (&Method::POST, "/payments") {
        return Ok(answer(StatusCode::NOT_FOUND, b"{\"error\":\"there is only POST /payments\"}".as_slice()));
    }
    let body =
        Limited::new(request.into_body(), 64 << 10).collect().await.map_err(|_| "the body is too long")?;
    let Ok(_payment) = serde_json::from_slice::<Payment>(&body.to_bytes()) else {
        return Ok(answer(
            StatusCode::BAD_REQUEST,
            b"{\"error\":\"a payment has `to` and `cents`\"}".as_slice(),
        ));
    };
    sleep(BANK).await;
    let receipt = bank.charge();
    if bank.breaks_down.swap(false, Ordering::Relaxed) {
        return Err("out of memory");
    }
    Ok(answer(StatusCode::CREATED, serde_json::to_vec(&receipt).map_err(|_| "a number is JSON")?))
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    response.body(Full::new(body.into())).expect("a status and a header that are valid")
}
