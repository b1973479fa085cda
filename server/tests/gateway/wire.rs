//! A connection whose bytes a test writes and reads itself.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::process::BOUND;

/// A request of HTTP/1.1, with a length if it has a body or is a POST. `fields` are lines, each
/// with its line end.
pub(crate) fn request(line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = match body.is_empty() && !line.starts_with("POST") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let mut bytes = format!("{line} HTTP/1.1\r\nHost: shop.example\r\n{length}{fields}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Any transport of bytes.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send {}

impl<I: AsyncRead + AsyncWrite + Send> Io for I {}

/// A connection.
pub(crate) struct Wire {
    io: Pin<Box<dyn Io>>,
    heard: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::try_to(address).await.expect("somebody listens")
    }

    /// A connection; `None` if no server listens.
    pub(crate) async fn try_to(address: SocketAddr) -> Option<Self> {
        let socket = TcpStream::connect(address).await.ok()?;
        socket.set_nodelay(true).ok()?;
        Some(Self::over(socket))
    }

    pub(crate) fn over(io: impl Io + 'static) -> Self {
        Self { io: Box::pin(io), heard: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.expect("the other side reads");
    }

    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> Option<()> {
        self.io.write_all(bytes.as_ref()).await.ok()?;
        self.io.flush().await.ok()
    }

    /// Ends the sending direction.
    pub(crate) async fn end(&mut self) {
        self.io.shutdown().await.expect("a live connection");
    }

    /// Reads some more; `false` at the end, however the other side has ended it.
    pub(crate) async fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        let read = timeout(BOUND, self.io.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("silence after {:?}", self.text())).unwrap_or(0);
        self.heard.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// Reads until this text has arrived, and consumes everything up to its end.
    pub(crate) async fn hear(&mut self, text: &str) -> String {
        loop {
            let at = self.heard.windows(text.len()).position(|found| found == text.as_bytes());
            if let Some(at) = at {
                let rest = self.heard.split_off(at + text.len());
                return String::from_utf8_lossy(&std::mem::replace(&mut self.heard, rest)).into_owned();
            }
            assert!(self.read().await, "closed without {text:?} after {:?}", self.text());
        }
    }

    /// Reads until the other side closes, and returns everything.
    pub(crate) async fn hear_all(&mut self) -> String {
        while self.read().await {}
        self.text()
    }

    /// Returns `true` if the other side sends nothing and does not close, for this long.
    pub(crate) async fn is_quiet_for(&mut self, time: Duration) -> bool {
        let mut buffer = [0; 1];
        self.heard.is_empty() && timeout(time, self.io.read(&mut buffer)).await.is_err()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        self.try_reply().await.unwrap_or_else(|| panic!("no whole answer, but {:?}", self.text()))
    }

    /// The next answer to a request that was not HEAD; `None` if the connection ends before it
    /// does. Interim answers are skipped.
    pub(crate) async fn try_reply(&mut self) -> Option<Reply> {
        let mut reply = loop {
            let reply = self.try_head().await?;
            if reply.status >= 200 {
                break reply;
            }
        };
        if matches!(reply.status, 204 | 304) {
            return Some(reply);
        }
        if reply.header("transfer-encoding").is_some() {
            loop {
                let size = self.take_line().await?;
                let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
                if size == 0 {
                    break;
                }
                reply.body.extend(self.take(size).await?);
                (self.take(2).await? == b"\r\n").then_some(())?;
            }
            loop {
                match self.take_line().await? {
                    line if line.is_empty() => return Some(reply),
                    line => reply.trailers.push(line),
                }
            }
        }
        match reply.header("content-length").map(str::parse) {
            Some(length) => reply.body = self.take(length.ok()?).await?,
            None => {
                while self.read().await {}
                reply.body = std::mem::take(&mut self.heard);
            }
        }
        Some(reply)
    }

    /// Status and headers of the next answer.
    pub(crate) async fn try_head(&mut self) -> Option<Reply> {
        let status = self.take_line().await?.split(' ').nth(1)?.parse().ok()?;
        let mut reply = Reply { status, headers: Vec::new(), body: Vec::new(), trailers: Vec::new() };
        loop {
            let line = self.take_line().await?;
            if line.is_empty() {
                return Some(reply);
            }
            let (name, value) = line.split_once(':')?;
            reply.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    async fn take_line(&mut self) -> Option<String> {
        let end = loop {
            if let Some(end) = self.heard.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            self.read().await.then_some(())?;
        };
        let line = self.take(end + 2).await?;
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.heard.len() < length {
            self.read().await.then_some(())?;
        }
        let rest = self.heard.split_off(length);
        Some(std::mem::replace(&mut self.heard, rest))
    }
}

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case, in their order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Status, body, and whether the answer is a replay: the parts that most tests need.
    pub(crate) fn told(&self) -> (u16, String, bool) {
        (self.status, self.text(), self.is_replay())
    }

    /// The problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        let problem: Value = serde_json::from_slice(&self.body).expect("a problem");
        assert_eq!(problem["code"], code);
        assert_eq!(problem["status"], status);
        problem
    }
}
