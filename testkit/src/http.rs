//! Plain requests to a service, without a library that could repair them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The status line and the header lines, in small letters.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Response {
    /// Returns `true` if it was replayed from a record.
    pub fn is_replay(&self) -> bool {
        self.head.contains("\r\nidempotency-replayed: true")
    }
}

/// Sends a request such as `POST /charges` with these header lines over a connection of its own, and
/// returns its response, whose body is not chunked.
pub async fn send(address: SocketAddr, request: &str, headers: &[&str], body: &str) -> Response {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let message = format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(message.as_bytes()).await.unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    let (head, body) = received.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{received:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{head:?}"));
    Response { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Checks that a charge at `POST /charges` runs once under a key: the first request, its repeat, and
/// a different request under the same key.
pub async fn charges_once(address: SocketAddr, key: &str) {
    let key = format!("idempotency-key: \"{key}\"");
    let post = async |body: &str| send(address, "POST /charges", &[&key], body).await;
    let (first, again) = (post("42").await, post("42").await);
    assert_eq!((first.status, first.is_replay()), (200, false), "{first:?}");
    assert!(again.is_replay(), "{again:?}");
    assert_eq!(again.body, first.body);
    let other = post("43").await;
    assert_eq!(other.status, 422, "{other:?}");
    assert!(other.body.contains("idempotency_key_reused"), "{other:?}");
}
