//! Traffic that passes through the gateway without being held in memory: large bodies, endless
//! ones, WebSockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::process::{BOUND, Setup, until};
use crate::upstream::{Act, Upstream};
use crate::wire::request;

const MIB: usize = 1 << 20;
/// The memory that the gateway may need in addition to its memory at rest: buffers of two
/// connections, with a margin.
const LITTLE: u64 = 24 << 20;

#[tokio::test]
async fn a_large_upload_is_passed_on_while_it_comes() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    assert_eq!(gateway.ask("POST /files", "", "warm").await.status, 200);
    let (at_rest, mut most) = (gateway.resident_bytes(), 0);
    let before = upstream.bytes().len();
    let mut wire = gateway.wire().await;
    wire.send(format!("POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 64 * MIB)).await;
    let piece = vec![b'x'; MIB];
    for sent in 1..=64 {
        wire.send(&piece).await;
        if sent == 8 {
            until("the upstream has seen what was sent so far", || {
                upstream.bytes().len() - before >= 8 * MIB
            })
            .await;
        }
        most = most.max(gateway.resident_bytes());
    }
    assert_eq!(wire.reply().await.status, 200);
    assert_eq!(upstream.seen()[1].body.len(), 64 * MIB);
    assert!(most < at_rest + LITTLE, "{most} bytes, and {at_rest} at rest");
}

#[tokio::test]
async fn a_chunked_upload_is_passed_on_in_chunks() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    wire.send("POST /files HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    until("the upstream has seen the first chunk", || {
        String::from_utf8_lossy(&upstream.bytes()).contains("hello")
    })
    .await;
    assert_eq!(upstream.count(), 0);
    wire.send("1\r\n \r\n5\r\nworld\r\n0\r\n\r\n").await;
    assert_eq!(wire.reply().await.status, 200);
    let seen = &upstream.seen()[0];
    assert_eq!(seen.body, b"hello world");
    assert_eq!((seen.all("transfer-encoding"), seen.header("content-length")), (vec!["chunked"], None));
}

#[tokio::test]
async fn an_upload_may_take_longer_than_the_answer_to_it() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--upstream-timeout", "2s").start().await;
    let mut wire = gateway.wire().await;
    wire.send("POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n").await;
    for byte in "0123456789".as_bytes() {
        // The client is as slow as possible, but continues.
        tokio::time::sleep(Duration::from_millis(220)).await;
        wire.send([*byte]).await;
    }
    assert_eq!(wire.reply().await.told(), (200, "run 1".to_owned(), false));
}

#[tokio::test]
async fn a_large_download_is_passed_on_while_it_comes() {
    let upstream = Upstream::raw(|mut line| async move {
        while line.request().await.is_some() {
            line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 * MIB)).await;
            for _ in 0..64 {
                line.send(vec![b'x'; MIB]).await;
            }
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    // This holds with a key, too: a response that is too large to be recorded is not held either.
    for fields in ["", "Idempotency-Key: k\r\n"] {
        let at_rest = gateway.resident_bytes();
        let mut wire = gateway.wire().await;
        wire.send(request("POST /files", fields, b"{}")).await;
        assert_eq!(wire.try_head().await.unwrap().status, 200);
        // The client does not read; the gateway must not collect the bytes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let most = gateway.resident_bytes();
        assert!(most < at_rest + LITTLE, "{most} bytes, and {at_rest} at rest");
        wire.send(request("GET /", "Connection: close\r\n", b"")).await;
        assert_eq!(wire.hear_all().await.len() / MIB, 64 * 2);
    }
    let again = gateway.ask("POST /files", "Idempotency-Key: k\r\n", "{}").await;
    assert_eq!(
        (again.told(), again.header("idempotency-replay")),
        ((200, String::new(), true), Some("omitted"))
    );
}

#[tokio::test]
async fn events_are_passed_on_one_by_one() {
    let go = Arc::new(Semaphore::new(0));
    let free = Arc::clone(&go);
    let upstream = Upstream::raw(move |mut line| {
        let free = Arc::clone(&free);
        async move {
            while line.request().await.is_some() {
                line.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                for event in 1..=3 {
                    free.acquire().await.unwrap().forget();
                    line.send(format!("8\r\ndata: {event}\n\r\n")).await;
                }
                line.send("0\r\n\r\n").await;
            }
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    for (line, fields) in [("GET /events", ""), ("POST /events", "Idempotency-Key: k\r\n")] {
        let mut wire = gateway.wire().await;
        wire.send(request(line, fields, b"")).await;
        wire.hear("\r\n\r\n").await;
        for event in 1..=3 {
            go.add_permits(1);
            wire.hear(&format!("data: {event}")).await;
        }
        wire.hear("0\r\n\r\n").await;
    }
    let again = gateway.ask("POST /events", "Idempotency-Key: k\r\n", "").await;
    assert_eq!((again.told(), upstream.count()), ((200, String::new(), true), 2));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_what_has_no_key() {
    let upstream = Upstream::raw(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        // The upstream waits until the gateway closes the connection.
        line.read().await;
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    wire.send(request("GET /events", "", b"")).await;
    wire.hear("\r\n\r\n").await;
    drop(wire);
    let gone = |text: &str| text.lines().any(|line| line == "semel_gateway_connections 0");
    let began = Instant::now();
    while !gone(&gateway.admin("/metrics").await.text()) {
        assert!(began.elapsed() < BOUND, "the connection of the client is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) const WEBSOCKET: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn a_websocket_is_passed_on_byte_by_byte() {
    let upstream = Upstream::raw(|mut line| async move {
        let seen = line.request().await.expect("a request");
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (Some("websocket"), Some("upgrade")));
        line.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n").await;
        while line.read().await {
            let heard = line.heard();
            line.send(heard).await;
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    wire.send(request("GET /socket", WEBSOCKET, b"")).await;
    let head = wire.try_head().await.unwrap();
    assert_eq!((head.status, head.header("sec-websocket-accept")), (101, Some("x")));
    assert_eq!((head.header("upgrade"), head.header("connection")), (Some("websocket"), Some("upgrade")));
    for text in ["\n\n\0", "GET / HTTP/1.1\nContent-Length: x\r\r\n", "end"] {
        wire.send(text).await;
        wire.hear(text).await;
    }
    wire.end().await;
    assert_eq!(wire.hear_all().await, "");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_websocket_takes_the_place_of_a_connection_until_it_ends() {
    let upstream = Upstream::raw(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            .await;
        while line.read().await {}
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "1").start().await;
    let mut socket = gateway.wire().await;
    socket.send(request("GET /socket", WEBSOCKET, b"")).await;
    assert_eq!(socket.try_head().await.unwrap().status, 101);
    let mut other = gateway.wire().await;
    other.send(request("GET /.well-known/idempotency", "", b"")).await;
    assert!(other.is_quiet_for(Duration::from_millis(200)).await, "there is one place");
    assert_eq!(gateway.metric(&["semel_gateway_connections "]).await, 1.0);
    drop(socket);
    assert_eq!(other.reply().await.status, 200);
}

#[tokio::test]
async fn a_websocket_that_the_upstream_does_not_want_is_an_answer() {
    let upstream = Upstream::start(|_| async {
        Act::Answer(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno".to_vec())
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    wire.send(request("GET /socket", WEBSOCKET, b"")).await;
    assert_eq!(wire.reply().await.told(), (426, "no".to_owned(), false));
    // The connection still speaks HTTP, and is examined as before.
    wire.send(request("GET /", "", b"")).await;
    assert_eq!(wire.reply().await.status, 426);
    wire.send("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n").await;
    assert_eq!(wire.reply().await.status, 400);
}
