//! Streamed answers: each holds a connection to the upstream, and counts towards the limit for as
//! long.

use std::time::Instant;

use http::Request;
use http_body_util::BodyExt;

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Gateway, Setup};
use crate::streams::WEBSOCKET;
use crate::upstream::{Act, Line, Upstream, ok};
use crate::wire::request;

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// A status that releases the key.
const RELEASED: &str = "HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n";
const SOCKET: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// Answers by the path: with an endless stream, or at once.
async fn converse(mut line: Line) {
    while let Some(seen) = line.request().await {
        let path = seen.line().split(' ').nth(1).expect("a path").to_owned();
        let head = match path.as_str() {
            "/events" => EVENTS.to_owned(),
            "/released" => RELEASED.to_owned(),
            "/large" => format!("HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{}", "x".repeat(4_000)),
            "/socket" => SOCKET.to_owned(),
            _ => {
                let (Act::Answer(bytes) | Act::Last(bytes)) = ok(&seen);
                line.send(bytes).await;
                continue;
            }
        };
        line.send(head).await;
        while line.read().await {}
        return;
    }
}

fn to(path: &str, key: &str) -> Request<Pieces> {
    let mut request = keyed(key, Pieces::whole("{}"));
    *request.uri_mut() = format!("http://shop.example{path}").parse().expect("a URI");
    request
}

fn without_key(path: &str) -> Request<Pieces> {
    let mut request = to(path, "none");
    request.headers_mut().remove("idempotency-key");
    request
}

async fn is_busy(client: &Client, request: Request<Pieces>) {
    let refused = client.ask(request).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let problem = refused.into_body().collect().await.expect("a problem").to_bytes();
    assert!(String::from_utf8_lossy(&problem).contains("gateway_busy"));
}

async fn passes_again(gateway: &Gateway) {
    let began = Instant::now();
    while gateway.ask("POST /charges", "", "{}").await.status != 200 {
        assert!(began.elapsed() < BOUND, "the places are not free again");
    }
}

/// Regression: 100 streams on each connection held as many connections to the upstream, and counted
/// towards no limit.
#[tokio::test]
async fn streamed_answers_of_attempts_take_the_places_of_requests_without_a_key_and_end_at_a_bound() {
    let upstream = Upstream::raw(converse).await;
    let setup = Setup::before(upstream.address).with("--max-response", "2000");
    let gateway = setup.with("--max-connections", "3").start().await;
    let client = Client::new(&gateway).await;
    let mut held = Vec::new();
    for (path, status) in [("/events", 200), ("/released", 429), ("/large", 200)] {
        // Answers that were read completely take no place.
        assert_eq!(client.ask(without_key("/charges")).await.status(), 200);
        let streamed = client.ask(to(path, path)).await;
        assert_eq!(streamed.status(), status);
        held.push(streamed);
    }
    is_busy(&client, without_key("/charges")).await;
    // Requests with a key still run: they have a limit of their own, and a reserve for their
    // answers.
    assert_eq!(client.ask(to("/charges", "done")).await.status(), 200);
    for number in 0..64 {
        held.push(client.ask(to("/events", &number.to_string())).await);
        assert_eq!(held.last().expect("just pushed").status(), 200);
    }
    let before = upstream.count();
    is_busy(&client, to("/charges", "new")).await;
    is_busy(&client, to("/charges", "done")).await;
    assert_eq!(upstream.count(), before);
    drop(held);
    passes_again(&gateway).await;
    assert_eq!(client.ask(to("/charges", "new")).await.status(), 200);
}

#[tokio::test]
async fn a_websocket_takes_a_place_of_the_requests_without_a_key_until_it_ends() {
    let upstream = Upstream::raw(converse).await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "2").start().await;
    let client = Client::new(&gateway).await;
    let first = client.ask(without_key("/events")).await;
    let second = client.ask(without_key("/events")).await;
    gateway.ask("GET /socket", WEBSOCKET, "").await.problem(503, "gateway_busy");
    drop(second);
    let began = Instant::now();
    let socket = loop {
        let mut wire = gateway.wire().await;
        wire.send(request("GET /socket", WEBSOCKET, b"")).await;
        if wire.try_head().await.expect("an answer").status == 101 {
            break wire;
        }
        assert!(began.elapsed() < BOUND, "the place is not free again");
    };
    is_busy(&client, without_key("/charges")).await;
    drop(socket);
    passes_again(&gateway).await;
    drop(first);
}
