//! Connections that send the next request as soon as the last one is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::app::BODY_BYTES;

/// The number of keys of the repeats.
const REPEATED: u64 = 2_000;

/// The key of a repeat.
pub(crate) fn repeated(n: u64) -> String {
    format!("repeated-{}", n % REPEATED)
}

/// Sends the requests that will be repeated.
pub(crate) async fn prepare(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    for n in 0..REPEATED {
        connection.ask(&repeated(n)).await?;
    }
    Ok(())
}

/// Lets this many connections send requests for this long, each again as soon as it is answered,
/// and returns the number of requests that were answered with a 200 and the whole body.
pub(crate) async fn flat_out(
    address: SocketAddr,
    connections: usize,
    length: Duration,
    key: impl Fn(u64) -> String + Send + Sync + 'static,
) -> Result<u64> {
    let (key, count) = (Arc::new(key), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + length;
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (key, count) = (Arc::clone(&key), Arc::clone(&count));
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await?;
                let mut answered = 0;
                while Instant::now() < end {
                    connection.ask(&key(count.fetch_add(1, Ordering::Relaxed))).await?;
                    answered += 1;
                }
                anyhow::Ok(answered)
            })
        })
        .collect();
    let mut answered = 0;
    for task in tasks {
        answered += task.await.context("a connection panicked")??;
    }
    Ok(answered)
}

/// A connection of HTTP/1.1 that is kept alive.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 8 << 10] })
    }

    /// Sends a request with this key, or without one if it is empty, and reads its answer to the
    /// end.
    async fn ask(&mut self, key: &str) -> Result<()> {
        let key = if key.is_empty() { String::new() } else { format!("idempotency-key: {key}\r\n") };
        let head = format!(
            "POST /charges HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{key}\
             content-length: {BODY_BYTES}\r\n\r\n"
        );
        let mut request = head.into_bytes();
        request.resize(request.len() + BODY_BYTES, b'x');
        self.stream.write_all(&request).await?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            ensure!(read > 0, "the server closed the connection");
            filled += read;
            let heard = &self.buffer[..filled];
            let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            ensure!(heard.starts_with(b"HTTP/1.1 200 "), "{}", heard.escape_ascii());
            if filled >= end + 4 + BODY_BYTES {
                return Ok(());
            }
        }
    }
}
