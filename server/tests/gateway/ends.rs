//! Silent exchanges, which end at their limit.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Setup};
use crate::upstream::{Upstream, answer};
use crate::wire::request;

#[tokio::test]
async fn a_stream_that_is_not_taken_to_its_last_byte_ends() {
    let upstream = Upstream::start(|_| async { answer("200 OK", "", vec![b'x'; 50_000]) }).await;
    let setup = Setup::before(upstream.address).with("--max-memory", "4MiB");
    let gateway = setup.with("--body-timeout", "500ms").start().await;
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    // The client stops at once, in the first piece, between two pieces, or one byte before the end.
    for window in [0, 1, 16_384, 49_999] {
        let client = Client::with_window(&gateway, window).await;
        let mut untaken = Vec::new();
        // The streams are more than a connection may have at a time, with and without a key: the
        // first must end before the last can begin.
        for stream in 0..260 {
            let mut asked = keyed("k", Pieces::whole("{}"));
            if stream % 2 == 0 {
                asked.headers_mut().clear();
            }
            untaken.push(client.ask(asked).await);
        }
        assert!(untaken.iter().all(|response| response.status() == 200));
    }
    gateway.stays_within(before, 4 << 20);
}

#[tokio::test]
async fn a_connection_of_http_2_that_only_answers_pings_ends() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--header-timeout", "500ms").start().await;
    let silent = Client::new(&gateway).await;
    timeout(BOUND, silent.connection).await.expect("it ends").unwrap();
    let client = Client::new(&gateway).await;
    for _ in 0..2 {
        let reply = client.ask(keyed("k", Pieces::whole("{}"))).await;
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "run 1");
    }
    timeout(BOUND, client.connection).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_request_over_http_2_may_take_longer_than_a_connection_may_be_idle() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--header-timeout", "100ms").start().await;
    let client = Client::new(&gateway).await;
    let asked = tokio::spawn(client.asking(keyed("k", Pieces::whole("{}"))));
    stop.arrival().await;
    sleep(Duration::from_millis(600)).await;
    stop.go();
    let reply = asked.await.unwrap().expect("an answer");
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "run 1");
}

#[tokio::test]
async fn a_stream_of_events_may_be_silent_for_longer_than_a_client() {
    let upstream = Upstream::raw(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for _ in 0..3 {
            sleep(Duration::from_millis(400)).await;
            line.send("4\r\ntick\r\n").await;
        }
        line.send("0\r\n\r\n").await;
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--body-timeout", "100ms").start().await;
    let client = Client::new(&gateway).await;
    let get = http::Request::get("http://shop.example/").body(Pieces::whole("")).unwrap();
    let reply = client.ask(get).await;
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "tickticktick");
}

#[tokio::test]
async fn an_idle_websocket_ends_and_one_that_talks_does_not() {
    let upstream = Upstream::raw(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            .await;
        while line.read().await {
            let heard = line.heard();
            line.send(heard).await;
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--websocket-timeout", "2s").start().await;
    let mut wire = gateway.wire().await;
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    wire.send(request("GET /socket", upgrade, b"")).await;
    assert_eq!(wire.try_head().await.unwrap().status, 101);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        wire.send("ping").await;
        wire.hear("ping").await;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(wire.hear_all().await, "");
    assert_eq!(gateway.log().matches("panicked").count(), 0);
}

#[tokio::test]
async fn a_body_without_a_key_that_drips_ends() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--body-timeout", "500ms").start().await;
    let mut wire = gateway.wire().await;
    wire.send("POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    let began = Instant::now();
    let reply = loop {
        assert!(began.elapsed() < BOUND, "it goes on dripping");
        let _closed = wire.try_send("x").await;
        if let Ok(reply) = timeout(Duration::from_millis(50), wire.try_reply()).await {
            break reply;
        }
    };
    if let Some(reply) = reply {
        reply.problem(408, "request_timeout");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_request_without_a_key_waits_once_for_its_answer() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--upstream-timeout", "4s").start().await;
    let began = Instant::now();
    let asked = gateway.ask("POST /files", "", "a body that was sent at once");
    let (reply, ()) = tokio::join!(asked, stop.arrival());
    reply.problem(504, "upstream_timeout");
    assert!((4..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}
