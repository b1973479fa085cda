//! Connections to the upstream, and the detection of answers to no request.
//!
//! ```text
//! begin ── request ── answer ── end ── … ── begin ── request
//!                                   │         │
//!                unexpected answer here    unread bytes here: the request is not sent
//! ```
//!
//! A kept connection carries one exchange after the other. An upstream that answers a request
//! twice, because a client made it see two requests in one, would answer the next request with the
//! second answer, which would be recorded under the key of that next request. hyper closes an idle
//! connection on which bytes arrive, but only once the runtime has reported them. The socket itself
//! is therefore checked before a request is written. Bytes that arrive after that moment and before
//! the true answer cannot be told from it: an upstream that was caught once gets no kept
//! connections for some time.
//!
//! All of this is above TLS, because some of the bytes below it (session tickets, new keys) belong
//! to no answer.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Authority;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use super::socket::{Socket, Sockets};
use super::spare::{Spare, Spares};

/// The time for which an upstream gets a new connection for each request after it has sent an
/// unrequested answer.
const DOUBT: Duration = Duration::from_secs(600);
/// The largest number of doubted upstreams, more than there are routes.
const DOUBTED: usize = 1_024;

/// The upstreams that are not trusted with kept connections.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Doubts(Arc<Doubted>);

#[derive(Debug, Default)]
struct Doubted {
    /// Set if there is any, so that usually no lock is taken.
    any: AtomicBool,
    until: Mutex<HashMap<Authority, Instant>>,
}

impl Doubts {
    /// Returns `true` if this upstream should get a new connection for each request.
    pub(in crate::gateway) fn has(&self, upstream: &Authority) -> bool {
        if !self.0.any.load(Ordering::Relaxed) {
            return false;
        }
        let until = self.0.until.lock();
        until.get(upstream).is_some_and(|until| Instant::now() < *until)
    }

    fn raise(&self, upstream: &Authority) {
        metrics::counter!("semel_gateway_upstream_strays_total").increment(1);
        tracing::warn!(
            %upstream,
            "the upstream has sent an answer that no request had asked for; the answer before it on this connection may be that of another \
             request. It gets a connection for each request for the next 10 minutes"
        );
        let mut until = self.0.until.lock();
        let now = Instant::now();
        until.retain(|_, until| now < *until);
        if until.len() < DOUBTED {
            until.insert(upstream.clone(), now + DOUBT);
        }
        self.0.any.store(true, Ordering::Relaxed);
    }
}

/// A connector whose connections are watched, with TLS where the URL says so.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Lines {
    connector: HttpsConnector<Sockets>,
    doubts: Doubts,
}

impl Lines {
    pub(in crate::gateway) fn new(tcp: HttpConnector, trust: ClientConfig, doubts: Doubts) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust)
            .https_or_http()
            // HTTP/1 only: over HTTP/2 many keys would share one connection, and would all be held
            // when it is lost.
            .enable_http1()
            .wrap_connector(Sockets(tcp));
        Self { connector, doubts }
    }
}

impl Service<Uri> for Lines {
    type Response = TokioIo<Line>;
    type Error = <HttpsConnector<Sockets> as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let doubted = uri.authority().map(|authority| (self.doubts.clone(), authority.clone()));
        let connecting = self.connector.call(uri);
        Box::pin(async move {
            let io = TokioIo::new(connecting.await?);
            Ok(TokioIo::new(Line { io, exchanges: Exchanges::new(doubted) }))
        })
    }
}

/// The exchanges of a connection: the number that have begun, and the last one that ended.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Exchanges(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Set until the first write of an exchange, except for the first exchange.
    starting: AtomicBool,
    /// Set when the upstream has closed the connection or announced that it will.
    closing: AtomicBool,
    /// Set when the connection is closed.
    gone: AtomicBool,
    /// The upstream that is doubted if unrequested bytes arrive.
    doubted: Option<(Doubts, Authority)>,
    spares: Spares,
}

impl Exchanges {
    fn new(doubted: Option<(Doubts, Authority)>) -> Self {
        Self(Arc::new(Counts {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            starting: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            doubted,
            spares: Spares::default(),
        }))
    }

    /// Begins an exchange before its request is written, and keeps the spare of the request until
    /// then. The task that serves the connection runs on this thread and has not run since.
    pub(in crate::gateway) fn begin(&self, spare: Option<Spare>) -> Exchange {
        self.0.spares.keep(spare);
        let number = self.0.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.starting.store(number > 1, Ordering::Relaxed);
        Exchange { of: self.clone(), number }
    }

    fn is_idle(&self) -> bool {
        let begun = self.0.begun.load(Ordering::Relaxed);
        begun > 0 && self.0.ended.load(Ordering::Relaxed) == begun
    }

    fn raise_doubt(&self) {
        if let Some((doubts, upstream)) = &self.0.doubted {
            doubts.raise(upstream);
        }
    }
}

/// A request and its answer.
#[derive(Debug)]
pub(in crate::gateway) struct Exchange {
    of: Exchanges,
    number: u64,
}

impl Exchange {
    /// Notes that the answer is the last one of its connection.
    pub(in crate::gateway) fn is_last(&self) {
        self.of.0.closing.store(true, Ordering::Relaxed);
    }

    /// The spare of the request, if nothing of the request was written.
    pub(in crate::gateway) fn take_spare(&self) -> Option<Spare> {
        self.of.0.spares.take()
    }

    /// Ends the exchange when the answer is complete. If hyper has closed the connection by then
    /// although the upstream had not, more bytes had arrived than belong to the answer.
    pub(in crate::gateway) fn end(&self) {
        let counts = &self.of.0;
        let ended = counts.ended.swap(self.number, Ordering::Relaxed);
        if ended != self.number
            && counts.gone.load(Ordering::Relaxed)
            && !counts.closing.load(Ordering::Relaxed)
        {
            self.of.raise_doubt();
        }
    }
}

/// A connection to an upstream.
#[derive(Debug)]
pub(in crate::gateway) struct Line {
    io: TokioIo<MaybeHttpsStream<TokioIo<Socket>>>,
    exchanges: Exchanges,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.exchanges.0.gone.store(true, Ordering::Relaxed);
    }
}

impl Line {
    /// Refuses to write a request if there is input: an unrequested answer, or the end of the
    /// connection. The runtime may not have noticed it yet, so the system is asked.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.exchanges.0.starting.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.input(context) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(true) => {
                self.exchanges.raise_doubt();
                Err(io::Error::other(Unsent))
            }
            Ok(false) | Err(_) => Err(io::Error::other(Unsent)),
        }
    }

    /// Drops the spare of the request when something was written.
    fn wrote(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(wrote, Poll::Ready(Ok(_))) {
            drop(self.exchanges.0.spares.take());
        }
        wrote
    }

    /// Returns `true` if there are unread bytes of an answer, `false` at the end of the connection,
    /// and [`io::ErrorKind::WouldBlock`] if there are neither.
    fn input(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if let MaybeHttpsStream::Http(socket) = self.io.inner() {
            return socket.inner().has_unread();
        }
        // Only TLS knows which bytes are those of an answer. A byte that is read here is lost, and
        // so is the connection.
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        self.set_asks_system(true);
        let read = Pin::new(&mut self.io).poll_read(context, &mut buffer);
        self.set_asks_system(false);
        match read {
            Poll::Ready(read) => read.map(|()| !buffer.filled().is_empty()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn set_asks_system(&mut self, asks: bool) {
        if let MaybeHttpsStream::Https(tls) = self.io.inner_mut() {
            let (socket, _) = tls.inner_mut().get_mut();
            socket.inner_mut().inner_mut().set_asks_system(asks);
        }
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.exchanges.clone())
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.exchanges.0.closing.store(true, Ordering::Relaxed);
        } else if self.exchanges.is_idle() {
            // hyper closes the connection and discards these bytes.
            self.exchanges.raise_doubt();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let wrote = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let wrote = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.wrote(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The error for a connection that was unfit for another request, of which nothing was sent.
#[derive(Debug)]
pub(in crate::gateway) struct Unsent;

impl Unsent {
    /// Returns `true` if this error is the cause of another.
    pub(in crate::gateway) fn caused(error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if held.is_some_and(|held| held.is::<Self>()) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was not fit for another request; nothing was sent")
    }
}

impl Error for Unsent {}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::task::Waker;
    use std::thread;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// In here, the runtime does not report what arrives.
    #[tokio::test]
    async fn an_unrequested_answer_over_tls_is_found_before_it_is_reported() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![certificate.clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, asked) = mpsc::channel();
        let serving = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::new(server)).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            asked.recv().unwrap();
            stream.write_all(b"stray").unwrap();
            // The connection stays open until the test has ended.
            let _ended = asked.recv();
        });
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let doubts = Doubts::default();
        let uri: Uri = format!("https://localhost:{port}/").parse().unwrap();
        let authority = uri.authority().unwrap().clone();
        let mut line = Lines::new(tcp, client, doubts.clone()).call(uri).await.unwrap().into_inner();
        let mut context = Context::from_waker(Waker::noop());
        let exchanges = line.exchanges.clone();
        let mut check = || {
            exchanges.begin(None).end();
            line.check(&mut context)
        };
        check().unwrap();
        // Tickets may have arrived, which are no answer.
        check().unwrap();
        assert!(!doubts.has(&authority));
        answer.send(()).unwrap();
        let began = Instant::now();
        let refused = loop {
            match check() {
                Err(refused) => break refused,
                Ok(()) => assert!(began.elapsed() < Duration::from_secs(60), "it is not found"),
            }
            thread::yield_now();
        };
        assert!(Unsent::caused(&refused));
        assert!(doubts.has(&authority));
        drop(answer);
        serving.join().unwrap();
    }
}
