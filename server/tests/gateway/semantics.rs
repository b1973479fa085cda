//! The guarantees for a client: one run, byte-equal replays, clear refusals.

use std::time::Duration;

use tokio::time::sleep;

use crate::process::Setup;
use crate::upstream::{Upstream, answer};

#[tokio::test]
async fn a_repeat_is_answered_with_the_same_bytes_and_does_not_reach_the_upstream() {
    let body: Vec<u8> = (0..=255).collect();
    let sent = body.clone();
    let upstream = Upstream::start(move |_| {
        let body = sent.clone();
        async move {
            let fields = "Content-Type: application/octet-stream\r\nLink: <b>\r\nLink: <a>\r\n\
                          ETag: \"7\"\r\nSet-Cookie: session=1\r\nX-Other: 1\r\n";
            answer("201 Created", fields, body)
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let first = gateway.post("k", "{}").await;
    assert_eq!((first.status, &first.body, first.is_replay()), (201, &body, false));
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    assert_eq!(first.header("x-other"), Some("1"));
    for _ in 0..3 {
        let again = gateway.post("k", "{}").await;
        assert_eq!((again.status, &again.body, again.is_replay()), (201, &body, true));
        let links: Vec<_> =
            again.headers.iter().filter(|(name, _)| name == "link").map(|(_, value)| &**value).collect();
        assert_eq!(links, ["<b>", "<a>"]);
        assert_eq!(again.header("etag"), Some("\"7\""));
        assert_eq!(again.header("content-type"), Some("application/octet-stream"));
        assert_eq!(again.header("cache-control"), Some("no-store"));
        assert_eq!((again.header("set-cookie"), again.header("x-other")), (None, None));
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn an_empty_answer_is_replayed_empty() {
    let upstream = Upstream::start(|_| async {
        crate::upstream::Act::Answer(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (204, String::new(), false));
    assert_eq!(gateway.post("k", "{}").await.told(), (204, String::new(), true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused_and_changes_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), false));
    for (line, fields, body) in [
        ("POST /charges", "", "{ }"),
        ("POST /charges?a=1", "", "{}"),
        ("POST /charges/", "", "{}"),
        ("POST //charges", "", "{}"),
        ("POST /%63harges", "", "{}"),
        ("PUT /charges", "", "{}"),
        ("POST /charges", "Content-Type: text/plain\r\n", "{}"),
        ("POST /charges", "Content-Encoding: gzip\r\n", "{}"),
    ] {
        let reply = gateway.ask(line, &format!("Idempotency-Key: k\r\n{fields}"), body).await;
        reply.problem(422, "idempotency_key_reused");
    }
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn how_the_body_was_cut_and_how_the_key_was_quoted_makes_no_difference() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    assert_eq!(gateway.post("abc", "hello").await.told(), (200, "run 1".to_owned(), false));
    let mut wire = gateway.wire().await;
    wire.send(
        "POST /charges HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\
         Idempotency-Key: \"abc\"\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(wire.reply().await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_repeat_while_it_runs_is_told_to_come_back() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    let repeat = gateway.post("k", "{}").await;
    repeat.problem(409, "idempotency_key_pending");
    let after: u64 = repeat.header("retry-after").and_then(|after| after.parse().ok()).expect("a number");
    assert!((1..=30).contains(&after), "{after}");
    // A mismatch takes precedence over a running attempt.
    gateway.post("k", "other").await.problem(422, "idempotency_key_reused");
    stop.go();
    assert_eq!(first.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), false));
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn repeats_may_wait_for_the_one_that_runs() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--wait", "30s").start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    let repeats: Vec<_> = (0..8).map(|_| gateway.posting("k", "{}")).collect();
    let running = ["semel_claims_total", "answer=\"running\""];
    while gateway.metric(&running).await < 8.0 && repeats.iter().all(|repeat| !repeat.is_finished()) {
        sleep(Duration::from_millis(5)).await;
    }
    gateway.post("k", "other").await.problem(422, "idempotency_key_reused");
    assert!(repeats.iter().all(|repeat| !repeat.is_finished()));
    stop.go();
    assert!(!first.await.unwrap().unwrap().is_replay());
    for repeat in repeats {
        assert_eq!(repeat.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), true));
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn an_invalid_key_is_refused_before_the_upstream_is_asked() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let long = "k".repeat(256);
    for key in [
        "",
        "\"\"",
        "\" k\"",
        "a,b",
        "a;b=1",
        "\"a\";b=1",
        "a\r\nIdempotency-Key: b",
        "\"a",
        &long,
        "k\u{e9}",
    ] {
        let reply = gateway.post(key, "{}").await;
        reply.problem(400, "idempotency_key_invalid");
    }
    assert_eq!(upstream.connections(), 0);
    // No key was claimed either.
    let claims = gateway.admin("/metrics").await.text();
    assert!(!claims.contains("semel_claims_total{"), "{claims}");
    assert_eq!(gateway.post(&long[..255], "{}").await.status, 200);
}

#[tokio::test]
async fn a_key_counts_on_some_methods_only_and_without_one_everything_passes() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut runs = 0;
    for (method, counts) in [
        ("GET", false),
        ("HEAD", false),
        ("OPTIONS", false),
        ("QUERY", false),
        ("POST", true),
        ("PUT", true),
        ("PATCH", true),
        ("DELETE", true),
    ] {
        for _ in 0..2 {
            let mut wire = gateway.wire().await;
            let fields = format!("Idempotency-Key: {method}\r\nConnection: close\r\n");
            wire.send(crate::wire::request(&format!("{method} /charges"), &fields, b"")).await;
            assert!(wire.hear_all().await.starts_with("HTTP/1.1 200 OK"), "{method}");
        }
        runs += if counts { 1 } else { 2 };
        assert_eq!(upstream.count(), runs, "{method}");
        // The upstream gets the key, whether or not it counts.
        assert_eq!(upstream.seen()[runs - 1].header("idempotency-key"), Some(method));
    }
    for _ in 0..2 {
        assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
    }
    assert_eq!(upstream.count(), runs + 2);
}

#[tokio::test]
async fn a_key_may_be_required_and_methods_chosen() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address)
        .with("--require-key", "true")
        .with("--methods", "POST,QUERY")
        .start()
        .await;
    gateway.ask("POST /charges", "", "{}").await.problem(400, "idempotency_key_missing");
    assert_eq!(upstream.count(), 0);
    // PUT is not among the methods now, and GET never needs a key.
    assert_eq!(gateway.ask("PUT /charges", "", "{}").await.status, 200);
    assert_eq!(gateway.ask("GET /charges", "", "").await.status, 200);
    for replayed in [false, true] {
        let reply = gateway.ask("QUERY /charges", "Idempotency-Key: q\r\n", "{}").await;
        assert_eq!(reply.told(), (200, "run 3".to_owned(), replayed));
    }
}

#[tokio::test]
async fn one_key_from_many_connections_at_once_runs_once() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--wait", "30s").start().await;
    let all: Vec<_> = (0..64).map(|_| gateway.posting("k", "{}")).collect();
    let mut firsts = 0;
    for reply in all {
        let reply = reply.await.unwrap().unwrap();
        assert_eq!((reply.status, reply.text()), (200, "run 1".to_owned()));
        firsts += usize::from(!reply.is_replay());
    }
    assert_eq!((firsts, upstream.count()), (1, 1));
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_what_it_asked_for() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    first.abort();
    assert!(first.await.is_err());
    gateway.post("k", "{}").await.problem(409, "idempotency_key_pending");
    stop.go();
    assert_eq!(gateway.post_until_settled("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}
