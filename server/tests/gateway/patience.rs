//! Clients that are slow on purpose, or send too much.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::process::{BOUND, Setup};
use crate::upstream::Upstream;
use crate::wire::request;

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--header-timeout", "1s").start().await;
    // The beginnings are: nothing; a possible preface of HTTP/2; a part of a head; a line end only.
    for begun in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX",
        "\r\n",
    ] {
        let began = Instant::now();
        let mut wire = gateway.wire().await;
        wire.send(begun).await;
        wire.hear_all().await;
        assert!(began.elapsed() < BOUND, "{begun:?}");
    }
    // The limit also applies between two requests.
    let mut wire = gateway.wire().await;
    wire.send(request("GET /", "", b"")).await;
    assert_eq!(wire.reply().await.status, 200);
    assert_eq!(wire.hear_all().await, "");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_head_byte_by_byte_takes_no_longer_than_one_that_stops() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--header-timeout", "1s").start().await;
    let mut wire = gateway.wire().await;
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let began = Instant::now();
    while wire.try_send("X: y\r\n").await.is_some() {
        assert!(began.elapsed() < BOUND);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn an_upstream_may_take_longer_than_a_client() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address)
        .with("--header-timeout", "1s")
        .with("--body-timeout", "1s")
        .start()
        .await;
    let mut wire = gateway.wire().await;
    // This is the shortest possible request.
    wire.send("GET / HTTP/1.0\r\n\r\n").await;
    stop.arrival().await;
    assert!(wire.is_quiet_for(Duration::from_millis(1_500)).await);
    stop.go();
    assert!(wire.hear_all().await.ends_with("run 1"));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_timeout_and_claims_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--body-timeout", "200ms").start().await;
    for sent in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let mut wire = gateway.wire().await;
        wire.send(format!("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n{sent}")).await;
        wire.reply().await.problem(408, "request_timeout");
        assert!(!wire.read().await, "the connection is closed");
    }
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.post("k", "another body").await.told(), (200, "run 1".to_owned(), false));
    let mut wire = gateway.wire().await;
    wire.send("POST /charges HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    wire.reply().await.problem(408, "request_timeout");
    assert!(!wire.read().await);
    assert_eq!(upstream.count(), 1, "the other one did not come to its end");
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_claims_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    wire.send("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\nhello")
        .await;
    wire.end().await;
    wire.hear_all().await;
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.post("k", "another body").await.told(), (200, "run 1".to_owned(), false));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let upstream =
        Upstream::start(|_| async { crate::upstream::answer("200 OK", "", vec![b'x'; 32 << 20]) }).await;
    let gateway = Setup::before(upstream.address).with("--body-timeout", "200ms").start().await;
    let mut wire = gateway.wire().await;
    wire.send(request("GET /", "", b"")).await;
    let metric = |text: &str| text.lines().any(|line| line == "semel_gateway_connections 0");
    let began = Instant::now();
    while !metric(&gateway.admin("/metrics").await.text()) {
        assert!(began.elapsed() < BOUND, "the connection is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(wire);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let many: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    for (line, fields) in [("GET /", &*many), ("GET /", &long), (&format!("GET /{}", "a".repeat(70_000)), "")]
    {
        let mut wire = gateway.wire().await;
        let _closed = wire.try_send(request(line, fields, b"")).await;
        let heard = wire.hear_all().await;
        assert!(
            heard.is_empty() || heard.starts_with("HTTP/1.1 431") || heard.starts_with("HTTP/1.1 414"),
            "{heard}"
        );
    }
    assert_eq!(upstream.connections(), 0);
    let fitting: String = (0..100).map(|number| format!("X-{number}: y\r\n")).collect();
    assert_eq!(gateway.ask("GET /", &fitting, "").await.status, 200);
    assert_eq!(upstream.seen()[0].all("x-99"), ["y"]);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_anything_is_claimed() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--max-body", "10").start().await;
    gateway.post("k", "12345678901").await.problem(413, "request_too_large");
    let mut wire = gateway.wire().await;
    wire.send("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n").await;
    // The client is not asked for a body that would be refused.
    assert_eq!(wire.try_head().await.unwrap().status, 413);
    assert_eq!(gateway.post("k", "1234567890").await.told(), (200, "run 1".to_owned(), false));
    // Without a key there is no limit.
    assert_eq!(gateway.ask("POST /charges", "", "12345678901").await.status, 200);
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_client_waits_for_that() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    for key in ["Idempotency-Key: k\r\n", ""] {
        let mut wire = gateway.wire().await;
        wire.send(format!(
            "POST /charges HTTP/1.1\r\nHost: a\r\n{key}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.try_head().await.unwrap().status, 100);
        wire.send("hello").await;
        assert_eq!(wire.reply().await.status, 200);
        let seen = upstream.seen();
        let last = seen.last().unwrap();
        assert_eq!((last.header("expect"), &*last.body), (None, b"hello".as_slice()));
    }
}

#[tokio::test]
async fn more_connections_than_the_limit_wait_for_their_turn() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "2").start().await;
    let mut under_way: JoinSet<_> = (0..10)
        .map(|number| {
            let posting = gateway.posting(&format!("key-{number}"), "{}");
            async { posting.await.unwrap().unwrap().status }
        })
        .collect();
    stop.arrival().await;
    // While ten connections are answered one after the other, the rest has all the time to get in.
    for ended in 0..10 {
        if ended < 9 {
            stop.arrival().await;
        }
        assert!(upstream.count() <= ended + 2, "{} under way", upstream.count() - ended);
        stop.go();
        assert_eq!(under_way.join_next().await.unwrap().unwrap(), 200);
    }
}
