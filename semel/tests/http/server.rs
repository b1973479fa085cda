//! A server on a port of its own, a client, and a handler that counts its runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use semel::http::{Anonymous, IdempotencyLayer};
use semel::{Policy, Store};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Service;

/// The time limit for any step of a test.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// A layer whose callers share their keys, unless they have credentials.
pub(crate) fn sharing(store: impl Store) -> IdempotencyLayer {
    IdempotencyLayer::new(store).with_anonymous_callers(Anonymous::Share)
}

/// A server that ends when this is dropped, unless it was started elsewhere.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, Body>,
    _stop: Option<DropGuard>,
}

impl Server {
    /// Serves this on a port of its own.
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let serving = axum::serve(listener, app).into_future();
            tokio::select! {
                () = stopped.cancelled() => {}
                served = serving => served.expect("the server goes on"),
            }
        });
        Self { _stop: Some(stop.drop_guard()), ..Self::at(address) }
    }

    /// Serves a service of tower, without axum. Its errors end the connection.
    pub(crate) async fn start_service<S, B>(service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(stopped.run_until_cancelled_owned(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A failed connection is intended in some tests.
                    let _ended = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        }));
        Self { _stop: Some(stop.drop_guard()), ..Self::at(address) }
    }

    /// A server that was started elsewhere.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http(), _stop: None }
    }

    /// A handle of the same server that uses HTTP/2.
    pub(crate) fn by_http2(&self) -> Self {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { client, ..Self::at(self.address) }
    }

    /// A request to this server.
    pub(crate) fn request(&self, method: Method, path: &str) -> Asking<'_> {
        let request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        Asking { server: self, request, body: Body::empty() }
    }

    /// A POST with a key and a JSON body.
    pub(crate) fn post(&self, path: &str, key: &str, body: &'static str) -> Asking<'_> {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body)
    }

    /// Sends these bytes and reads until the server closes, or is silent for this long.
    pub(crate) async fn raw(&self, sent: &[u8], quiet: Duration) -> String {
        let mut socket = TcpStream::connect(self.address).await.expect("the server listens");
        socket.write_all(sent).await.expect("the server reads");
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        let mut patience = BOUND;
        while let Ok(Ok(read)) = tokio::time::timeout(patience, socket.read(&mut buffer)).await {
            patience = quiet;
            if read == 0 {
                break;
            }
            heard.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// A request under construction.
pub(crate) struct Asking<'a> {
    server: &'a Server,
    request: axum::http::request::Builder,
    body: Body,
}

impl Asking<'_> {
    pub(crate) fn header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = axum::http::HeaderValue::from_bytes(value.as_ref()).expect("a value that can be sent");
        Self { request: self.request.header(name, value), ..self }
    }

    pub(crate) fn body(self, body: impl Into<Body>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) async fn send(self) -> Reply {
        self.try_send().await.expect("an answer")
    }

    /// The whole answer; `None` if there is none.
    pub(crate) async fn try_send(self) -> Option<Reply> {
        let (parts, body) = self.open().await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Reply { status: parts.status, headers: parts.headers, body })
    }

    /// The answer as soon as it begins, or the error.
    pub(crate) async fn open(self) -> Result<Response<Incoming>, Error> {
        let request = self.request.body(self.body).expect("a valid request");
        let answer = tokio::time::timeout(BOUND, self.server.client.request(request));
        answer.await.expect("an answer before long")
    }
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.body.escape_ascii());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        let problem: Value = serde_json::from_slice(&self.body).expect("a problem");
        assert_eq!(problem["code"], code);
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string() && problem["type"].is_string());
        problem
    }
}

/// A counter of the runs of a handler.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    /// Counts one more, and returns the number.
    pub(crate) fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A handler that stands still in the middle until it may go on.
#[derive(Clone)]
pub(crate) struct Stop {
    arrived: Arc<Semaphore>,
    free: Arc<Semaphore>,
}

impl Default for Stop {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { arrived: none(), free: none() }
    }
}

impl Stop {
    /// The part of the handler: it reports its arrival, and waits.
    pub(crate) async fn here(&self) {
        self.arrived.add_permits(1);
        self.free.acquire().await.expect("never closed").forget();
    }

    /// Waits until one more handler has arrived.
    pub(crate) async fn arrival(&self) {
        let arrival = tokio::time::timeout(BOUND, self.arrived.acquire()).await;
        arrival.expect("it arrives before long").expect("never closed").forget();
    }

    /// Lets one handler continue.
    pub(crate) fn go(&self) {
        self.free.add_permits(1);
    }
}

/// The policy with a lease of this many milliseconds.
pub(crate) fn leased(policy: Policy, millis: u64) -> Policy {
    policy.with_lease(Duration::from_millis(millis))
}

/// Waits until this holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.expect("it holds before long");
}
