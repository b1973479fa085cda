//! One request through the gateway.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use semel::http::{ReadAhead, Rejection};
use tower_service::Service;

use crate::config::{Config, Uncovered};
use crate::gateway::accept::screen::Tunnel;
use crate::gateway::accept::tunnel;
use crate::gateway::request::door::{self, Upgrade};
use crate::gateway::request::problem::{Own, Problem};
use crate::gateway::request::table::{self, Table, Target};
use crate::gateway::upstream::Downstream;
use crate::gateway::upstream::body::{Inbound, Moved, Reply, Returned};

/// The path at which the gateway describes itself to clients.
const PUBLISHED: &str = "/.well-known/idempotency";

/// Marks a refusal over HTTP/1 before the whole request has arrived as the last answer of its
/// connection: hyper does not read the rest.
pub(in crate::gateway) fn mark_last(response: &mut Response<Reply>, tunnel: &Tunnel) {
    let told = response.extensions();
    let is_refusal = told.get::<Own>().is_some() || told.get::<Rejection>().is_some();
    if is_refusal && tunnel.expects_more() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Answers a request: at the door, from a route's layer, or by passing it on.
pub(in crate::gateway) async fn serve(
    config: &Config,
    table: &Table,
    mut request: Request<Incoming>,
    from: Downstream,
    tunnel: &Tunnel,
) -> Response<Reply> {
    if let Err(refused) = door::admit(&mut request, config) {
        return refused.map(Reply::Other);
    }
    if request.uri().path() == PUBLISHED && request.method() == Method::GET {
        return published(table).map(Reply::Other);
    }
    let Some(target) = table.target(request.uri().path()) else {
        return Problem::NO_ROUTE.response(None).map(Reply::Other);
    };
    if matches!(config.uncovered, Uncovered::Refuse)
        && let Some(why) = table::uncovered(target, &request)
    {
        return Problem::UNCOVERED.response(Some(why)).map(Reply::Other);
    }
    // The layer reads a request with a key within a time limit, and reports a timeout itself.
    let is_keyed = table::reads(target, &request);
    let mut request = if is_keyed {
        request.map(Inbound::read)
    } else {
        let moved = Moved::new();
        let mut request = request.map(|body| Inbound::passed(body, config.body_timeout, moved.clone()));
        request.extensions_mut().insert(moved);
        request
    };
    request.extensions_mut().insert(from);
    let passing = target.upstream().passing();
    if is_keyed && passing.is_exhausted() {
        return Problem::BUSY.for_now().map(Reply::Other);
    }
    if let Target::Covered(covered) = target
        && is_keyed
    {
        match covered.callers.scope(request.headers(), request.uri()).await {
            Ok(Some(scope)) => drop(request.extensions_mut().insert(scope)),
            Ok(None) => {}
            Err(refused) => return refused.map(Reply::Other),
        }
    }
    if let Some(upgrade) = door::upgrade(request.headers()).filter(|_| request.version() == Version::HTTP_11)
    {
        let covered =
            matches!(target, Target::Covered(covered) if covered.methods.contains(request.method()));
        match upgrade {
            _ if covered => return Problem::UPGRADE.response(None).map(Reply::Other),
            Upgrade::WebSocket if request.method() == Method::GET => {
                let (upstream, tunnel) = (target.upstream(), tunnel.clone());
                // The futures of rare ways are boxed, which keeps the future of each request small.
                let opened = Box::pin(tunnel::open(upstream, request, tunnel, config.websocket_timeout));
                return opened.await.map(Reply::Other);
            }
            Upgrade::WebSocket | Upgrade::Other => {}
        }
    }
    let (Ok(response) | Err(response)) = match target {
        Target::Covered(covered) => {
            let answered = covered.service.clone().call(request).await;
            answered.map(|response| {
                // Until here the limit of attempts has counted the request.
                let place = (is_keyed && is_streamed(response.body())).then(|| passing.enter_anyway());
                response.map(|body| Reply::Layer { body, _place: place })
            })
        }
        Target::Open(upstream) => {
            upstream.clone().call(request).await.map(|response| response.map(Reply::Other))
        }
    }
    .map_err(|never| match never {});
    response
}

/// Returns `true` if the body is still coming from the upstream.
fn is_streamed(body: &ReadAhead<Returned>) -> bool {
    !body.is_end_stream() && body.try_clone().is_none()
}

fn published(table: &Table) -> Response<Returned> {
    let mut response = Response::new(Returned::Own(Some(table.published())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
