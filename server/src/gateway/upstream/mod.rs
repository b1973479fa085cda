//! The upstream: the service behind the gateway, as an inner service of the layer.
//!
//! - `line`: a connection to the upstream; it finds answers that no request asked for.
//! - `socket`: the socket of a connection, below TLS.
//! - `spare`: the copy of a request, until it is sent.
//! - `body`: the bodies that pass through.
//! - `patient`, `drip`: time limits and least rates of bodies.
//! - `headers`: the fields that are added and taken off on the way.

pub(in crate::gateway) mod line;
pub(in crate::gateway) mod spare;
mod socket;
pub(in crate::gateway) mod body;
pub(in crate::gateway) mod patient;
pub(in crate::gateway) mod drip;
pub(in crate::gateway) mod headers;

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Extensions, Request, Response, Uri, Version, request};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use metrics::Histogram;
use rustls::ClientConfig;
use semel::Lease;
use semel::http::Settle;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::config::Origin;
use crate::gateway::request::passing::Passing;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::body::{Moved, Outbound, Returned};
use crate::gateway::upstream::headers::Unwanted;
use crate::gateway::upstream::line::{Doubts, Exchange, Exchanges, Lines, Unsent};
use crate::gateway::upstream::patient::Broken;
use crate::gateway::upstream::spare::Spare;

/// The time for which an idle connection is kept. Servers close theirs after five seconds or more;
/// a request that is sent at that moment is lost, and the fate of its key is unknown.
const IDLE: Duration = Duration::from_secs(4);
/// The time limit of connecting, during which nothing has been sent.
const CONNECT: Duration = Duration::from_secs(5);

/// The largest number of headers in an answer. An answer with more cannot be read, and its key is held.
const MAX_HEADERS: usize = 512;

/// The largest read buffer of an upstream connection, and the largest head of an answer.
const BUFFER: usize = 64 << 10;

type Pool = legacy::Client<Lines, Outbound>;

/// The client for all upstreams, which sends each request once.
#[derive(Clone)]
pub(in crate::gateway) struct Client {
    /// The pool that keeps connections.
    keeping: Pool,
    /// The pool that opens a connection for each request.
    fresh: Pool,
    doubts: Doubts,
}

/// A client for all upstreams.
pub(in crate::gateway) fn client(trust: ClientConfig, doubts: Doubts) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let connector = Lines::new(tcp, trust, doubts.clone());
    let mut pool = legacy::Client::builder(TokioExecutor::new());
    pool.pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .retry_canceled_requests(false)
        .http1_max_headers(MAX_HEADERS)
        .http1_max_buf_size(BUFFER);
    let keeping = pool.build(connector.clone());
    Client { keeping, fresh: pool.pool_max_idle_per_host(0).build(connector), doubts }
}

/// The client that sent a request, for the headers that tell the upstream of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Downstream {
    pub(in crate::gateway) peer: SocketAddr,
    pub(in crate::gateway) is_tls: bool,
}

/// The service behind the gateway. It is cloned for every request.
#[derive(Clone)]
pub(in crate::gateway) struct Upstream(Arc<Shared>);

struct Shared {
    client: Client,
    origin: Origin,
    patience: Duration,
    unwanted: Unwanted,
    passing: Passing,
    seconds: Histogram,
}

impl Upstream {
    pub(in crate::gateway) fn new(
        client: Client,
        origin: Origin,
        patience: Duration,
        unwanted: Unwanted,
        passing: Passing,
    ) -> Self {
        let seconds = metrics::histogram!("semel_gateway_upstream_seconds");
        Self(Arc::new(Shared { client, origin, patience, unwanted, passing, seconds }))
    }

    /// The places for requests that are passed through, shared by all upstreams.
    pub(in crate::gateway) fn passing(&self) -> &Passing {
        &self.0.passing
    }

    /// The request to the upstream for a client's request.
    pub(in crate::gateway) fn request(
        &self,
        mut parts: request::Parts,
        body: Outbound,
    ) -> Result<Request<Outbound>, http::Error> {
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder()
            .scheme(self.0.origin.scheme.clone())
            .authority(self.0.origin.authority.clone())
            .path_and_query(path)
            .build()?;
        let from = parts.extensions.get::<Downstream>();
        let (peer, is_tls): (Option<IpAddr>, bool) =
            from.map_or((None, false), |from| (Some(from.peer.ip()), from.is_tls));
        headers::for_upstream(&mut parts.headers, &self.0.unwanted, &parts.uri, peer, is_tls);
        if let Some(lease) = parts.extensions.get::<Lease>() {
            headers::tell(&mut parts.headers, lease);
        }
        let mut request = Request::new(body);
        if let Some(moved) = parts.extensions.get::<Moved>() {
            request.extensions_mut().insert(moved.clone());
        }
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = parts.headers;
        Ok(request)
    }

    /// Sends a request, once, over a connection of its own, and waits for the head of the answer.
    pub(in crate::gateway) async fn send_over_new(
        &self,
        request: Request<Outbound>,
    ) -> Result<Response<Returned>, Unanswered> {
        self.send_over(&self.0.client.fresh, request, &mut None).await
    }

    /// The pool for requests to this upstream.
    fn pool(&self) -> &Pool {
        let client = &self.0.client;
        if client.doubts.has(&self.0.origin.authority) { &client.fresh } else { &client.keeping }
    }

    /// Sends a request, once, and waits for the head of the answer. The spare stays only if nothing
    /// was sent.
    async fn send_over(
        &self,
        client: &Pool,
        mut request: Request<Outbound>,
        spare: &mut Option<Spare>,
    ) -> Result<Response<Returned>, Unanswered> {
        let Shared { origin, patience, seconds, .. } = &*self.0;
        let began = Instant::now();
        let captured = capture_connection(&mut request);
        let moved = request.extensions().get::<Moved>().cloned();
        let mut asking = std::pin::pin!(client.request(request));
        let mut exchange: Option<Exchange> = None;
        let mut answer = std::pin::pin!(poll_fn(|context| {
            let polled = asking.as_mut().poll(context);
            // The connection has just been given the request, and its task has not run yet.
            if exchange.is_none()
                && let Some(connected) = &*captured.connection_metadata()
            {
                let mut extras = Extensions::new();
                connected.get_extras(&mut extras);
                exchange = extras.get().map(|line: &Exchanges| line.begin(spare.take()));
            }
            polled
        }));
        let mut until = began + *patience;
        let answer = loop {
            match timeout_at(until, &mut answer).await {
                // The time counts from the last byte that was sent of the request.
                Err(_) if moved.as_ref().is_some_and(|moved| moved.last() + *patience > until) => {
                    until = moved.as_ref().map_or(until, |moved| moved.last() + *patience);
                }
                answer => break answer,
            }
        };
        seconds.record(began.elapsed());
        if spare.is_none() {
            *spare = exchange.as_ref().and_then(Exchange::take_spare);
        }
        // Known from the moment the connection has the request, and not before.
        let connected = captured.connection_metadata().is_some();
        match answer {
            Ok(Ok(response)) if headers::is_misframed(response.headers()) => {
                Err(Unanswered::Malformed("is framed in a way that cannot be passed on"))
            }
            Ok(Ok(response)) => {
                // Bytes after a switch of protocols are not an answer.
                let exchange = exchange.filter(|_| !response.status().is_informational());
                if let Some(exchange) = exchange.as_ref().filter(|_| headers::is_last(&response)) {
                    exchange.is_last();
                }
                Ok(response.map(|body| Returned::passed(body, *patience, exchange)))
            }
            Ok(Err(error)) => Err(Unanswered::because(&error, connected, origin)),
            Err(_) if connected => Err(Unanswered::TimedOut),
            Err(_) => {
                tracing::warn!(upstream = %origin, "there was no connection to the upstream in time");
                Err(Unanswered::Unreachable)
            }
        }
    }
}

impl<B: Into<Outbound> + Send + 'static> Service<Request<B>> for Upstream {
    type Response = Response<Returned>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Returned>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // An attempt has had its place since before its claim.
            let place = match parts.extensions.get::<Lease>() {
                // But its answer may be a stream, and many requests can have come by the limit of
                // streams while they were read.
                Some(_) if upstream.0.passing.is_exhausted() => {
                    let mut busy = Problem::BUSY.for_now();
                    busy.extensions_mut().insert(Settle::Release);
                    return Ok(busy);
                }
                Some(_) => None,
                None => match upstream.0.passing.enter() {
                    Some(place) => Some(Arc::new(place)),
                    None => return Ok(Problem::BUSY.for_now()),
                },
            };
            // An answer may end before its request does.
            if let (Some(place), Some(moved)) = (&place, parts.extensions.get::<Moved>()) {
                moved.hold(Arc::clone(place));
            }
            let Ok(request) = upstream.request(parts, body.into()) else {
                return Ok(Unanswered::Unsendable.response());
            };
            let mut spare = Spare::of(&request);
            let mut answer = upstream.send_over(upstream.pool(), request, &mut spare).await;
            if let (Err(Unanswered::Unsent), Some(spare)) = (&answer, spare) {
                // The kept connection was unfit, and nothing was sent. This is rare, and boxed to
                // keep the future of each request small.
                answer = Box::pin(upstream.send_over_new(spare.into_request())).await;
            }
            Ok(answer.and_then(final_only).map_or_else(Unanswered::response, |mut response| {
                if let Some(settle) = headers::for_client(response.headers_mut()) {
                    response.extensions_mut().insert(settle);
                }
                match place {
                    Some(place) => response.map(|body| body.holding(place)),
                    None => response,
                }
            }))
        })
    }
}

/// Rejects a switch of protocols that was not requested: it is not an answer.
fn final_only(response: Response<Returned>) -> Result<Response<Returned>, Unanswered> {
    if response.status().is_informational() { Err(Unanswered::Lost) } else { Ok(response) }
}

/// The reason why there is no answer, which decides the state of the key.
#[derive(Debug)]
pub(in crate::gateway) enum Unanswered {
    /// Nothing was sent.
    Unreachable,
    /// The request cannot be sent.
    Unsendable,
    /// The client disconnected while its body was passed on.
    BrokeOff,
    /// The client sent its body too slowly.
    Slow,
    /// The connection was unfit for the request, and nothing was sent.
    Unsent,
    /// The connection ended after part of the request was sent.
    Lost,
    /// The answer cannot be read, or its framing cannot be passed on.
    Malformed(&'static str),
    /// No answer came in time.
    TimedOut,
}

impl Unanswered {
    fn because(error: &legacy::Error, connected: bool, origin: &Origin) -> Self {
        let cause = match Broken::caused(error) {
            Some(Broken::Off(_)) => return Self::BrokeOff,
            Some(Broken::Slow) => return Self::Slow,
            // A request that a closed connection has not accepted is returned unchanged.
            None if Unsent::caused(error) || connected && is_canceled(error) => return Self::Unsent,
            None if !connected => Self::Unreachable,
            None if is_unreadable(error) => Self::Malformed("has a head that cannot be read"),
            None => Self::Lost,
        };
        let why = error.source().map_or_else(|| error.to_string(), chain);
        match cause {
            Self::Malformed(_) => {
                tracing::warn!(upstream = %origin, error = why, "the answer of the upstream cannot be read");
            }
            _ => tracing::warn!(upstream = %origin, error = why, "the upstream did not answer"),
        }
        cause
    }

    pub(in crate::gateway) fn response(self) -> Response<Returned> {
        let (problem, settle) = match self {
            Self::Unreachable | Self::Unsent => (Problem::UNREACHABLE, Settle::Release),
            Self::Unsendable => (Problem::MALFORMED, Settle::Release),
            Self::BrokeOff => (Problem::BROKE_OFF, Settle::Abandon("the request broke off".to_owned())),
            Self::Slow => (Problem::SLOW, Settle::Abandon("the request did not go on".to_owned())),
            Self::Lost => {
                (Problem::LOST, Settle::Abandon("the upstream was lost before it answered".to_owned()))
            }
            Self::Malformed(why) => {
                (Problem::UNREADABLE, Settle::Abandon(format!("the answer of the upstream {why}")))
            }
            Self::TimedOut => {
                (Problem::TIMED_OUT, Settle::Abandon("the upstream did not answer in time".to_owned()))
            }
        };
        let mut response = problem.response(None);
        response.extensions_mut().insert(settle);
        response
    }
}

fn is_canceled(error: &legacy::Error) -> bool {
    of_connection(error).is_some_and(hyper::Error::is_canceled)
}

/// Returns `true` if there was an answer whose head is not HTTP, or too large.
fn is_unreadable(error: &legacy::Error) -> bool {
    of_connection(error).is_some_and(hyper::Error::is_parse)
}

/// The error of the connection that had the request.
fn of_connection(error: &legacy::Error) -> Option<&hyper::Error> {
    error.source()?.downcast_ref()
}

/// An error with all its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
