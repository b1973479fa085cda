//! A service behind the gateway that behaves as a test directs, and keeps every received byte.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::stop::Stop;
use crate::wire::Io;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The number of the request, from one.
    pub(crate) number: usize,
    /// The first line and the fields, byte for byte.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().expect("a line")
    }

    /// The values of all fields of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

/// The reaction of an upstream to a request.
pub(crate) enum Act {
    /// Sends these bytes, and reads the next request.
    Answer(Vec<u8>),
    /// Sends these bytes, and closes.
    Last(Vec<u8>),
}

/// An answer with a length.
pub(crate) fn answer(status: &str, fields: &str, body: impl AsRef<[u8]>) -> Act {
    let body = body.as_ref();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Act::Answer(bytes)
}

/// A success with the number of the run.
pub(crate) fn ok(seen: &Seen) -> Act {
    answer("200 OK", "Content-Type: text/plain\r\n", format!("run {}", seen.number))
}

/// The requests that an upstream has seen, on all its connections.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    requests: Arc<Mutex<Vec<Seen>>>,
    /// Every byte of each connection.
    bytes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Ledger {
    fn connection(&self) -> usize {
        let mut bytes = self.bytes.lock().expect("no thread panics with it");
        bytes.push(Vec::new());
        bytes.len() - 1
    }

    fn read(&self, connection: usize, bytes: &[u8]) {
        self.bytes.lock().expect("no thread panics with it")[connection].extend_from_slice(bytes);
    }

    fn request(&self, head: String, body: Vec<u8>) -> Seen {
        let mut requests = self.requests.lock().expect("no thread panics with it");
        let seen = Seen { number: requests.len() + 1, head, body };
        requests.push(seen.clone());
        seen
    }
}

/// A service on a port of its own, which ends when this is dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Ledger,
    _serving: AbortOnDropHandle<()>,
}

impl Upstream {
    /// A service that answers with the number of the run.
    pub(crate) async fn counting() -> Self {
        Self::start(|seen| async move { ok(&seen) }).await
    }

    /// A service that counts, and waits before each answer.
    pub(crate) async fn stopping() -> (Self, Stop) {
        let stop = Stop::default();
        let stops = stop.clone();
        let upstream = Self::start(move |seen| {
            let stop = stops.clone();
            async move {
                stop.here().await;
                ok(&seen)
            }
        });
        (upstream.await, stop)
    }

    /// A service that reacts in this way to each request, once it has read it.
    pub(crate) async fn start<F, A>(act: F) -> Self
    where
        F: Fn(Seen) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Act> + Send,
    {
        Self::raw(move |mut line| {
            let act = act.clone();
            async move {
                while let Some(seen) = line.request().await {
                    match act(seen).await {
                        Act::Answer(bytes) => line.send(bytes).await,
                        Act::Last(bytes) => return line.send(bytes).await,
                    }
                }
            }
        })
        .await
    }

    /// A service that handles each connection in this way.
    pub(crate) async fn raw<F, C>(converse: F) -> Self
    where
        F: Fn(Line) -> C + Clone + Send + Sync + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        Self::over(|socket| async { Some(socket) }, converse).await
    }

    /// A service that first transforms each connection, for example by TLS.
    pub(crate) async fn over<G, H, I, F, C>(greet: G, converse: F) -> Self
    where
        G: Fn(TcpStream) -> H + Clone + Send + Sync + 'static,
        H: Future<Output = Option<I>> + Send,
        I: Io + Unpin + 'static,
        F: Fn(Line) -> C + Clone + Send + Sync + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let ledger = Ledger::default();
        let book = ledger.clone();
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                socket.set_nodelay(true).expect("a live socket");
                let (greet, converse, book) = (greet.clone(), converse.clone(), book.clone());
                tokio::spawn(async move {
                    if let Some(io) = greet(socket).await {
                        let connection = book.connection();
                        converse(Line { io: Box::new(io), heard: Vec::new(), connection, ledger: book })
                            .await;
                    }
                });
            }
        }));
        Self { address, ledger, _serving: serving }
    }

    /// All requests that have arrived.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.ledger.requests.lock().expect("no thread panics with it").clone()
    }

    /// The number of requests that have arrived.
    pub(crate) fn count(&self) -> usize {
        self.seen().len()
    }

    /// Every byte that has arrived, on all connections.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.ledger.bytes.lock().expect("no thread panics with it").concat()
    }

    pub(crate) fn connections(&self) -> usize {
        self.ledger.bytes.lock().expect("no thread panics with it").len()
    }
}

/// A connection of an upstream.
pub(crate) struct Line {
    io: Box<dyn IoUnpin>,
    heard: Vec<u8>,
    connection: usize,
    ledger: Ledger,
}

trait IoUnpin: Io + Unpin {}

impl<I: Io + Unpin> IoUnpin for I {}

impl Line {
    /// Reads the next request to its end; `None` when the connection ends before.
    pub(crate) async fn request(&mut self) -> Option<Seen> {
        let head = self.head().await?;
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
        };
        let mut body = Vec::new();
        if field("transfer-encoding").is_some() {
            loop {
                let size = self.until(b"\r\n").await?;
                let size = usize::from_str_radix(String::from_utf8(size).ok()?.trim(), 16).ok()?;
                let mut chunk = self.take(size + 2).await?;
                chunk.truncate(size);
                if size == 0 {
                    break;
                }
                body.append(&mut chunk);
            }
        } else if let Some(length) = field("content-length") {
            body = self.take(length.parse().ok()?).await?;
        }
        Some(self.ledger.request(head, body))
    }

    /// Reads only the head of a request, which is not counted yet.
    pub(crate) async fn head(&mut self) -> Option<String> {
        String::from_utf8(self.until(b"\r\n\r\n").await?).ok()
    }

    /// Sends bytes; they are lost if the other end no longer reads.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _lost = self.io.write_all(bytes.as_ref()).await;
        let _lost = self.io.flush().await;
    }

    /// Reads some more; `false` at the end.
    pub(crate) async fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        let read = self.io.read(&mut buffer).await.unwrap_or(0);
        self.ledger.read(self.connection, &buffer[..read]);
        self.heard.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// The bytes that were read but not consumed.
    pub(crate) fn heard(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.heard)
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.heard.windows(end.len()).position(|found| found == end) {
                return self.take(at + end.len()).await;
            }
            self.read().await.then_some(())?;
        }
    }

    async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.heard.len() < length {
            self.read().await.then_some(())?;
        }
        let rest = self.heard.split_off(length);
        Some(std::mem::replace(&mut self.heard, rest))
    }
}
