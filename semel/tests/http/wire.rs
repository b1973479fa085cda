//! A connection whose bytes a test writes and reads itself, and bodies that it feeds.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::server::{BOUND, Server};

/// A connection to a server.
pub(crate) struct Wire {
    socket: TcpStream,
    heard: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address).await.expect("the server listens");
        socket.set_nodelay(true).expect("a live socket");
        Self { socket, heard: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Ends the sending direction.
    pub(crate) async fn end(&mut self) {
        self.socket.shutdown().await.expect("a live socket");
    }

    /// Reads until this text has arrived, and returns everything so far.
    pub(crate) async fn hear(&mut self, text: &str) -> String {
        let hearing = async {
            while !self.text().contains(text) {
                assert!(self.read().await, "closed without {text:?} after {:?}", self.text());
            }
        };
        let heard = timeout(BOUND, hearing).await;
        assert!(heard.is_ok(), "no {text:?}, but {:?}", self.text());
        self.text()
    }

    /// Reads until the server closes, and returns everything.
    pub(crate) async fn hear_all(&mut self) -> String {
        timeout(BOUND, async { while self.read().await {} }).await.expect("the server closes before long");
        self.text()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    /// Reads some more; `false` at the end, however the server has ended it.
    async fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = self.socket.read(&mut buffer).await.unwrap_or(0);
        self.heard.extend_from_slice(&buffer[..read]);
        read > 0
    }
}

/// A piece of a body that a test feeds.
pub(crate) type Piece = Result<Frame<Bytes>, std::io::Error>;

/// Bytes for such a body.
pub(crate) fn data(bytes: impl Into<Bytes>) -> Piece {
    Ok(Frame::data(bytes.into()))
}

/// Trailers for such a body.
pub(crate) fn trailers(name: &'static str, value: &'static str) -> Piece {
    let name = axum::http::HeaderName::from_static(name);
    Ok(Frame::trailers([(name, axum::http::HeaderValue::from_static(value))].into_iter().collect()))
}

/// The end of a body that fails.
pub(crate) fn broken() -> Piece {
    Err(std::io::Error::other("the source broke"))
}

/// A body and its feeder; the body ends when the feeder is dropped.
pub(crate) fn fed() -> (mpsc::UnboundedSender<Piece>, Body) {
    let (feed, pieces) = mpsc::unbounded_channel();
    (feed, body_of(pieces))
}

fn body_of(pieces: mpsc::UnboundedReceiver<Piece>) -> Body {
    let next = |mut pieces: mpsc::UnboundedReceiver<Piece>| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    };
    Body::new(StreamBody::new(stream::unfold(pieces, next)))
}

/// A body of these pieces, one after another.
pub(crate) fn made_of(pieces: impl IntoIterator<Item = Piece>) -> Body {
    let (feed, body) = fed();
    pieces.into_iter().for_each(|piece| feed.send(piece).expect("the body is here"));
    body
}
