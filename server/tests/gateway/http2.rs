//! HTTP/2 clients that accept and send exactly the bytes that a test chooses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::process::{BOUND, Gateway};

/// A body of these pieces. A body that does not end stays at its last piece.
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    ends: bool,
}

impl Pieces {
    pub(crate) fn whole(body: impl Into<Bytes>) -> Self {
        Self { pieces: VecDeque::from([body.into()]), ends: true }
    }

    pub(crate) fn endless(body: impl Into<Bytes>) -> Self {
        Self { pieces: VecDeque::from([body.into()]), ends: false }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// A connection that accepts this much of each response before it is read, and answers pings.
pub(crate) struct Client {
    sender: SendRequest<Pieces>,
    /// The task that ends with the connection.
    pub(crate) connection: JoinHandle<()>,
}

impl Client {
    pub(crate) async fn with_window(gateway: &Gateway, window: u32) -> Self {
        let io = TokioIo::new(TcpStream::connect(gateway.address).await.expect("somebody listens"));
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window).initial_connection_window_size(1 << 30);
        let (sender, connection) = builder.handshake(io).await.expect("HTTP/2");
        let connection = tokio::spawn(async move {
            let _ended = connection.await;
        });
        Self { sender, connection }
    }

    pub(crate) async fn new(gateway: &Gateway) -> Self {
        Self::with_window(gateway, 1 << 20).await
    }

    /// Sends a request in the background; `None` if there is no answer.
    pub(crate) fn asking(
        &self,
        request: Request<Pieces>,
    ) -> impl Future<Output = Option<Response<Incoming>>> + Send + use<> {
        let mut sender = self.sender.clone();
        async move {
            sender.ready().await.ok()?;
            timeout(BOUND, sender.send_request(request)).await.expect("in time").ok()
        }
    }

    pub(crate) async fn ask(&self, request: Request<Pieces>) -> Response<Incoming> {
        self.asking(request).await.expect("an answer")
    }
}

/// A POST with this key.
pub(crate) fn keyed(key: &str, body: Pieces) -> Request<Pieces> {
    let request = Request::post("http://shop.example/charges").header("idempotency-key", key);
    request.body(body).expect("a request")
}
