//! Connections of clients, from the first byte to the last.
//!
//! - `workers`: a thread for each processor; connections are dealt out to them.
//! - `stream`: a connection with its time limits, below the parser.
//! - `screen`: refuses what two servers could read in two ways.
//! - `linger`: discards the rest of a request that was refused, so that the refusal arrives.
//! - `idle`: closes HTTP/2 connections without requests.
//! - `taken`: ends response streams over HTTP/2 that the client reads too slowly.
//! - `taking`: the rate at which a client must take an answer.
//! - `tls`: certificates.
//! - `tunnel`: WebSockets.
//! - `files`: the limit of open files.

pub(in crate::gateway) mod workers;
pub(in crate::gateway) mod stream;
pub(in crate::gateway) mod screen;
pub(in crate::gateway) mod linger;
pub(in crate::gateway) mod idle;
pub(in crate::gateway) mod taken;
pub(in crate::gateway) mod taking;
pub(in crate::gateway) mod tls;
pub(in crate::gateway) mod tunnel;
pub(in crate::gateway) mod files;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::accept::idle::Idle;
use crate::gateway::accept::screen::Tunnel;
use crate::gateway::accept::stream::Stream;
use crate::gateway::accept::taken::{Streams, Taken};
use crate::gateway::request::serve::{mark_last, serve};
use crate::gateway::state::{Current, State};
use crate::gateway::upstream::Downstream;

/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// The largest number of fields in a head: over HTTP/1.1 the parser refuses more, over HTTP/2 the
/// door does.
pub(in crate::gateway) const FIELDS: usize = 128;
/// The largest number of concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// The HTTP/2 receive window of a stream: the most bytes that a client may send before they are
/// read. The window of the connection is the sum over its streams, so that an unread body cannot
/// block the others.
const STREAM_WINDOW: u32 = 32 << 10;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// The send buffer of an HTTP/2 stream.
const SEND_BUFFER: usize = 32 << 10;
/// The largest head of a request over HTTP/2, where many are in progress at once.
const LISTED_BYTES: u32 = 32 << 10;
/// The pause after the system failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until told to stop, and serves each on a task of its own.
pub(in crate::gateway) async fn accept(
    listener: TcpListener,
    state: Arc<State>,
    connections: TaskTracker,
    stop: CancellationToken,
) {
    let mut worker = 0;
    let room = Arc::new(Semaphore::new(state.current().config.max_connections));
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = Arc::clone(&room).acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        let Some(Some((place, accepted))) = stop.run_until_cancelled(accepted).await else { return };
        let (io, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The process may be out of files or memory, or the client may have left; later
                // connections can still succeed.
                tracing::warn!(%error, "could not accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Connections are dealt out in turn, so that each worker has its share.
        worker = (worker + 1) % state.workers.handles().len();
        let handle = state.workers.handles()[worker].clone();
        let (state, stop) = (Arc::clone(&state), stop.clone());
        let tunnel = Tunnel::keeping((place, state.meter.connected()));
        let Ok(io) = io.into_std() else { continue };
        let serve = async move {
            // The socket is registered with the runtime of the thread on which this runs.
            if let Ok(io) = TcpStream::from_std(io) {
                greet(io, Downstream { peer, is_tls: false }, Server { state, worker, tunnel, stop }).await;
            }
        };
        connections.spawn_on(serve, &handle);
    }
}

/// The parts that serve a connection.
struct Server {
    state: Arc<State>,
    worker: usize,
    tunnel: Tunnel,
    stop: CancellationToken,
}

/// Performs the TLS handshake, if TLS is configured, within a time limit.
async fn greet(io: TcpStream, from: Downstream, server: Server) {
    // Without `TCP_NODELAY` every small answer may wait for an acknowledgement. A failure here only
    // costs speed.
    let _ = io.set_nodelay(true);
    let current = server.state.current();
    let Some(tls) = &current.tls else { return converse(io, from, &current, &server).await };
    let greeting = timeout(current.config.header_timeout, tls.accept(io));
    // A client without a request is not waited for.
    let Some(greeted) = server.stop.run_until_cancelled(greeting).await else { return };
    match greeted {
        Ok(Ok(io)) => converse(io, Downstream { is_tls: true, ..from }, &current, &server).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client does not speak TLS as we do"),
        Err(_) => tracing::debug!("a client did not finish its greeting in time"),
    }
}

/// The reason why a connection gets no further requests.
enum End {
    Stop,
    Idle,
}

/// Serves the requests of a connection. After a stop signal, the request in progress is the last.
async fn converse<I>(io: I, from: Downstream, current: &Current, server: &Server)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Server { state, worker, tunnel, stop } = server;
    let idle = Idle::new();
    let io = TokioIo::new(Stream::new(
        io,
        current.config.header_timeout,
        current.config.body_timeout,
        tunnel.clone(),
        state.lingering.clone(),
        Arc::clone(&idle),
    ));
    let service = service_fn(|request| {
        // Each request uses the configuration in force when it arrives.
        let (state, current, tunnel) = (Arc::clone(state), state.current(), tunnel.clone());
        let worker = *worker;
        let is_http_2 = request.version() == Version::HTTP_2;
        let busy = is_http_2.then(|| idle.enter());
        async move {
            let mut response = serve(&current.config, &current.tables[worker], request, from, &tunnel).await;
            if !is_http_2 {
                mark_last(&mut response, &tunnel);
            }
            state.meter.answered(response.status());
            Ok::<_, Infallible>(response.map(|body| Taken::new(body, busy)))
        }
    });
    let mut protocol = auto::Builder::new(Streams::new(current.config.body_timeout));
    protocol
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(current.config.header_timeout)
        .max_headers(FIELDS)
        .max_buf_size(HEAD_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(LISTED_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(current.config.header_timeout)
        .keep_alive_timeout(current.config.header_timeout);
    let mut connection = std::pin::pin!(protocol.serve_connection_with_upgrades(io, service));
    let end = async {
        tokio::select! {
            () = stop.cancelled() => End::Stop,
            () = idle.lasts(current.config.header_timeout) => End::Idle,
        }
    };
    // The set polls the end when that is woken, and not with each request: it takes locks that all
    // connections share.
    let mut end = FuturesUnordered::from_iter([end]);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        Some(end) = end.next() => {
            connection.as_mut().graceful_shutdown();
            match end {
                End::Stop => connection.await,
                End::Idle => {
                    idle.touch();
                    // A client that is closing, or has just sent a request, is waited for; an idle
                    // one is not.
                    tokio::select! {
                        ended = connection => ended,
                        () = idle.lasts(current.config.header_timeout) => return,
                    }
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}
