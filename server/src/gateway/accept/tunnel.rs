//! WebSockets, which are copied byte by byte after the handshake.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::gateway::accept::idle::{Heard, Idle};
use crate::gateway::accept::screen::Tunnel;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::body::{Inbound, Moved, Returned};
use crate::gateway::upstream::headers;
use crate::gateway::upstream::{Unanswered, Upstream};

/// Asks the upstream for a WebSocket. If it agrees, bytes are copied between the two connections
/// until either side closes, or both are idle for as long as the patience.
pub(in crate::gateway) async fn open(
    upstream: &Upstream,
    mut request: Request<Inbound>,
    tunnel: Tunnel,
    patience: Duration,
) -> Response<Returned> {
    let Some(place) = upstream.passing().enter() else { return Problem::BUSY.for_now() };
    let place = Arc::new(place);
    let client_side = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    // An answer other than a WebSocket may end before its request does.
    if let Some(moved) = parts.extensions.get::<Moved>() {
        moved.hold(Arc::clone(&place));
    }
    let Ok(mut asked) = upstream.request(parts, body.into()) else {
        return Unanswered::Unsendable.response();
    };
    upgrade(asked.headers_mut());
    let mut response = match upstream.send_over_new(asked).await {
        Ok(response) => response,
        Err(unanswered) => return unanswered.response(),
    };
    let agreed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let upstream_side = agreed.then(|| hyper::upgrade::on(&mut response));
    headers::for_client(response.headers_mut());
    let Some(upstream_side) = upstream_side else {
        return response.map(|body| body.holding(place));
    };
    upgrade(response.headers_mut());
    tunnel.open();
    tokio::spawn(async move {
        let _place = place;
        let (Ok(client), Ok(upstream)) = tokio::join!(client_side, upstream_side) else { return };
        let idle = Idle::new();
        idle.count();
        let heard = |io| Heard::new(TokioIo::new(io), Arc::clone(&idle));
        let (mut client, mut upstream) = (heard(client), heard(upstream));
        tokio::select! {
            // Either side may close in any way, and no one is left to receive an error.
            _ = copy_bidirectional(&mut client, &mut upstream) => {}
            () = idle.lasts(patience) => tracing::debug!("a WebSocket was idle for too long"),
        }
    });
    response
}

fn upgrade(headers: &mut HeaderMap) {
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
}
