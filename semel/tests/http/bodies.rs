//! Bodies of all kinds, both ways.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, Method, Response, header};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use semel::admin::{Inspect, ListQuery};
use semel::http::IdempotencyLayer;
use semel::{MemoryStore, Policy};
use testkit::gates::{Gate, Through};

use crate::server::{BOUND, Count, Server, sharing, until};
use crate::wire::{Wire, broken, data, fed, made_of, trailers};

fn layer() -> IdempotencyLayer {
    sharing(MemoryStore::new())
}

/// A server whose handler answers with the request's body, and counts its runs.
async fn echoing(layer: IdempotencyLayer) -> (Server, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = post(move |body: Bytes| async move {
        counted.up();
        body
    });
    let app = Router::new().route("/echo", handler).layer(layer).layer(DefaultBodyLimit::disable());
    (Server::start(app).await, count)
}

/// A server whose handler counts its runs and answers with the body that this function makes.
async fn answering(
    layer: Option<IdempotencyLayer>,
    content_type: &'static str,
    make: impl Fn() -> Body + Clone + Send + Sync + 'static,
) -> (Server, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = post(move || async move {
        counted.up();
        let response = Response::builder().header("content-type", content_type);
        response.header("trailer", "x-sum").header("etag", "\"7\"").body(make()).unwrap()
    });
    let app = Router::new().route("/stream", handler);
    let app = match layer {
        Some(layer) => app.layer(layer),
        None => app,
    };
    (Server::start(app).await, count)
}

/// A body for one answer: the second run finds none.
fn once(body: Body) -> impl Fn() -> Body + Clone + Send + Sync + 'static {
    let body = Arc::new(Mutex::new(Some(body)));
    move || body.lock().unwrap().take().expect("only one run")
}

/// The next bytes of an answer.
async fn next(response: &mut Response<Incoming>) -> Bytes {
    let frame = tokio::time::timeout(BOUND, response.frame()).await.expect("bytes before long");
    frame.expect("not the end").expect("no error").into_data().expect("bytes")
}

/// Checks that a repeat gets an answer that was recorded without its body.
async fn assert_omitted(server: &Server) {
    let again = server.post("/stream", "k", "{}").send().await;
    assert_eq!((again.status.as_u16(), again.text()), (200, ""));
    assert!(again.is_replay());
    assert_eq!(again.header("idempotency-replay"), Some("omitted"));
    assert_eq!((again.header("content-type"), again.header("content-encoding")), (None, None));
    assert_eq!((again.header("cache-control"), again.header("etag")), (Some("no-store"), Some("\"7\"")));
}

/// Waits until the answer under the only key is recorded.
async fn recorded(store: &MemoryStore) {
    let waiting = async {
        while !store.list(&ListQuery::default()).await.unwrap().records.iter().any(|r| r.outcome().is_some())
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.expect("recorded before long");
}

#[tokio::test]
async fn large_bodies_pass_both_ways_and_are_replayed() {
    let size = 6 << 20;
    let policy = Policy::hold().with_max_body_bytes(size);
    let (server, count) = echoing(layer().with_max_request_bytes(size).with_policy(policy)).await;
    let body: Bytes = (0..size).map(|at| (at * 31 % 251) as u8).collect();
    for replayed in [false, true] {
        let reply = server.post("/echo", "k", "").body(body.clone()).send().await;
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (200, replayed));
        assert!(reply.body == body, "{} bytes came back", reply.body.len());
    }
    let more = server.post("/echo", "other", "").body([&body[..], b"!"].concat()).send().await;
    more.problem(413, "request_too_large");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn chunks_do_not_count() {
    let (server, count) = echoing(layer()).await;
    let framings = [
        "content-length: 9\r\n\r\na,b\r\n,c,d",
        "transfer-encoding: chunked\r\n\r\n9\r\na,b\r\n,c,d\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n1\r\na\r\n4;x=1\r\n,b\r\n\r\n004\r\n,c,d\r\n0\r\n\r\n",
    ];
    for (number, framing) in framings.iter().enumerate() {
        let mut wire = Wire::to(&server).await;
        wire.send("POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n").await;
        wire.send(framing).await;
        let heard = wire.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("a,b\r\n,c,d"), "{heard}");
        assert_eq!(heard.contains("idempotency-replayed: true"), number > 0, "{heard}");
    }
    assert_eq!(count.get(), 1);
    let other = server.request(Method::POST, "/echo").header("idempotency-key", "k").body("a,b,c,d");
    other.send().await.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn a_client_that_expects_100_hears_it_before_it_sends_the_body() {
    let (server, count) = echoing(layer()).await;
    for replayed in [false, true] {
        let mut wire = Wire::to(&server).await;
        wire.send("POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n").await;
        wire.send("expect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
        let heard = wire.hear("\r\n\r\n").await;
        assert_eq!(heard, "HTTP/1.1 100 Continue\r\n\r\n");
        wire.send("body").await;
        let heard = wire.hear_all().await;
        assert!(heard.contains("HTTP/1.1 200 OK\r\n") && heard.ends_with("\r\n\r\nbody"), "{heard}");
        assert_eq!(heard.contains("idempotency-replayed: true"), replayed);
    }
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_client_that_expects_100_is_refused_without_it() {
    let (server, count) = echoing(layer().with_required_key(true)).await;
    for (header, status) in [
        ("idempotency-key: a,b\r\ncontent-length: 4", "400"),
        ("idempotency-key: a\r\nidempotency-key: b\r\ncontent-length: 4", "400"),
        ("content-length: 4", "400"),
        ("idempotency-key: k\r\ncontent-length: 1048577", "413"),
    ] {
        let mut wire = Wire::to(&server).await;
        wire.send(format!("POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n{header}\r\n\r\n"))
            .await;
        let heard = wire.hear("}").await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
        assert!(!heard.contains("100 Continue"), "{heard}");
    }
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn an_encoded_request_is_passed_on_as_it_is_and_its_encoding_counts() {
    let handler = post(|headers: HeaderMap, body: Bytes| async move {
        ([("content-encoding", headers["content-encoding"].clone())], body)
    });
    let server = Server::start(Router::new().route("/echo", handler).layer(layer())).await;
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0not really".as_slice();
    let send =
        |encoding: &str| server.post("/echo", "k", "").header("content-encoding", encoding).body(gzip).send();
    let (first, again) = (send("gzip").await, send("gzip").await);
    assert!(!first.is_replay() && again.is_replay());
    for reply in [first, again] {
        assert_eq!((&*reply.body, reply.header("content-encoding")), (gzip, Some("gzip")));
    }
    send("br").await.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn trailers_of_a_request_reach_the_handler() {
    let handler = post(|request: Request| async move {
        let collected = request.into_body().collect().await.unwrap();
        let sum = collected.trailers().map(|trailers| trailers["x-sum"].to_str().unwrap().to_owned());
        format!("{sum:?} {}", collected.to_bytes().escape_ascii())
    });
    let server = Server::start(Router::new().route("/sum", handler).layer(layer())).await;
    let mut wire = Wire::to(&server).await;
    wire.send("POST /sum HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n").await;
    wire.send("transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nab\r\n0\r\nx-sum: 7\r\n\r\n").await;
    let heard = wire.hear_all().await;
    assert!(heard.ends_with("Some(\"7\") ab"), "{heard}");

    let server = server.by_http2();
    let body = made_of([data("ab"), trailers("x-sum", "7")]);
    let reply = server.post("/sum", "by http/2", "").body(body).send().await;
    assert_eq!(reply.text(), "Some(\"7\") ab");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_whole_for_the_first_caller_and_omitted_for_repeats() {
    let whole: Bytes = (0..300_000).map(|at| (at % 251) as u8).collect();
    let pieces = |whole: &Bytes| made_of(whole.chunks(7_000).map(|piece| data(piece.to_vec())));
    for body in [Body::from(whole.clone()), pieces(&whole)] {
        let policy = Policy::hold().with_max_body_bytes(100_000);
        let (server, count) = answering(Some(layer().with_policy(policy)), "text/plain", once(body)).await;
        let first = server.post("/stream", "k", "{}").send().await;
        assert!(first.body == whole, "{} bytes came", first.body.len());
        assert_eq!((first.header("content-type"), first.header("etag")), (Some("text/plain"), Some("\"7\"")));
        assert_eq!((first.is_replay(), first.header("idempotency-replay")), (false, None));
        for _ in 0..3 {
            assert_omitted(&server).await;
        }
        assert_eq!(count.get(), 1);
    }
}

#[tokio::test]
async fn an_answer_of_just_the_limit_is_recorded_whole() {
    let policy = Policy::hold().with_max_body_bytes(4);
    let (server, count) = echoing(layer().with_policy(policy)).await;
    assert_eq!(server.post("/echo", "k", "1234").send().await.text(), "1234");
    let again = server.post("/echo", "k", "1234").send().await;
    assert_eq!((again.text(), again.header("idempotency-replay"), count.get()), ("1234", None, 1));
}

#[tokio::test]
async fn events_reach_the_first_caller_at_once_and_the_key_is_recorded_meanwhile() {
    let mut tries = 0;
    let (store, feed, server, count, mut first) = loop {
        let store = MemoryStore::new();
        let (feed, body) = fed();
        let layer = sharing(store.clone());
        let (server, count) = answering(Some(layer), "text/event-stream", once(body)).await;
        feed.send(data("data: 1\n\n")).unwrap();
        let began = Instant::now();
        let mut first = server.post("/stream", "k", "{}").open().await.unwrap();
        assert_eq!((first.status().as_u16(), next(&mut first).await), (200, "data: 1\n\n".into()));
        // The answer comes before the second is over for which streams are gathered. A busy machine
        // may take that long by itself, but not every time.
        if began.elapsed() < Duration::from_secs(1) {
            break (store, feed, server, count, first);
        }
        tries += 1;
        assert!(tries < 20, "events are gathered");
    };
    recorded(&store).await;
    assert_omitted(&server).await;
    feed.send(data("data: 2\n\n")).unwrap();
    assert_eq!(next(&mut first).await, "data: 2\n\n");
    drop(feed);
    assert!(first.frame().await.is_none());
    assert_omitted(&server).await;
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn an_answer_that_pauses_is_streamed_from_there_on() {
    let store = MemoryStore::new();
    let (feed, body) = fed();
    let (server, count) = answering(Some(sharing(store.clone())), "text/plain", once(body)).await;
    feed.send(data("one ")).unwrap();
    let mut first = server.post("/stream", "k", "{}").open().await.unwrap();
    assert_eq!(next(&mut first).await, "one ");
    recorded(&store).await;
    assert_omitted(&server).await;
    feed.send(data("two")).unwrap();
    assert_eq!(next(&mut first).await, "two");
    drop(feed);
    assert!(first.frame().await.is_none());
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn trailers_of_an_answer_reach_the_first_caller() {
    let pieces = || made_of([data("ab"), data("cd"), trailers("x-sum", "7")]);
    let (server, count) = answering(Some(layer()), "text/plain", pieces).await;
    let mut wire = Wire::to(&server).await;
    wire.send("POST /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\nte: trailers\r\n").await;
    wire.send("content-type: application/json\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{}").await;
    let heard = wire.hear_all().await;
    assert!(heard.contains("abcd\r\n0\r\nx-sum: 7\r\n\r\n"), "{heard}");
    assert_omitted(&server).await;
    assert_eq!(count.get(), 1);

    let by_http2 = server.by_http2();
    let first = by_http2.post("/stream", "by http/2", "{}").open().await.unwrap();
    let collected = first.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(collected.to_bytes(), "abcd");
    assert_eq!(count.get(), 2);
}

/// The part of a broken answer that the caller receives, without the headers that depend on the
/// moment, and without chunks.
async fn heard_of(server: &Server, key: &str) -> String {
    let mut wire = Wire::to(server).await;
    wire.send("POST /stream HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n").await;
    wire.send(format!("idempotency-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}")).await;
    let heard = wire.hear_all().await;
    let lines = heard.split("\r\n").filter(|line| !line.starts_with("date: "));
    lines.filter(|line| !line.bytes().all(|byte| byte.is_ascii_hexdigit())).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_as_without_the_layer_and_never_runs_again() {
    // The source pauses before it breaks, so that a server has sent the available part.
    let breaking = || {
        let (feed, body) = fed();
        feed.send(data("half an ")).unwrap();
        feed.send(data("answer")).unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _gone = feed.send(broken());
        });
        body
    };
    let (plain, _) = answering(None, "text/plain", breaking).await;
    let (server, count) = answering(Some(layer()), "text/plain", breaking).await;
    let (expected, heard) = (heard_of(&plain, "k").await, heard_of(&server, "k").await);
    assert!(expected.starts_with("HTTP/1.1 200 OK") && expected.contains("half an "), "{expected}");
    assert_eq!(heard.replace('\n', ""), expected.replace('\n', ""));
    assert_omitted(&server).await;
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn requests_without_a_key_stream_both_ways() {
    let handler = post(|request: Request| async move { Response::new(request.into_body()) });
    let app = Router::new().route("/echo", handler).layer(layer().with_max_request_bytes(10));
    let server = Server::start(app).await;
    for server in [&server, &server.by_http2()] {
        let (feed, body) = fed();
        feed.send(data("one")).unwrap();
        let mut answer = server.request(Method::POST, "/echo").body(body).open().await.unwrap();
        assert_eq!(next(&mut answer).await, "one");
        // Together the bodies exceed the limit of a request with a key, and each is passed on while
        // it arrives.
        for _ in 0..3 {
            feed.send(data("and more")).unwrap();
            assert_eq!(next(&mut answer).await, "and more");
        }
        drop(feed);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
    }
}

#[tokio::test]
async fn a_key_is_the_same_over_http_1_and_http_2() {
    let (server, count) = echoing(layer()).await;
    let by_http2 = server.by_http2();
    let first = by_http2.post("/echo", "k", "body").send().await;
    let replays =
        [by_http2.post("/echo", "k", "body").send().await, server.post("/echo", "k", "body").send().await];
    assert_eq!((first.text(), first.is_replay()), ("body", false));
    assert!(replays.iter().all(|reply| reply.text() == "body" && reply.is_replay()));
    by_http2.post("/echo", "k", "other").send().await.problem(422, "idempotency_key_reused");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn cookies_that_http_2_sends_one_by_one_are_the_same_caller() {
    // RFC 9113, 8.2.3: a client may split its cookies into several fields, and they mean the same.
    let (server, count) = echoing(layer().with_credentials([header::COOKIE])).await;
    let by_http2 = server.by_http2();
    let whole = server.post("/echo", "k", "body").header("cookie", "a=1; b=2").send().await;
    let split = by_http2.post("/echo", "k", "body").header("cookie", "a=1").header("cookie", "b=2");
    let (split, other) =
        (split.send().await, by_http2.post("/echo", "k", "body").header("cookie", "a=1").send().await);
    assert_eq!((whole.is_replay(), split.is_replay(), other.is_replay()), (false, true, false));
    assert_eq!(count.get(), 2);
}

/// A server whose store counts its calls.
async fn watched() -> (Gate, Server, Count) {
    let gate = Gate::new();
    let (server, count) = echoing(sharing(Through(gate.clone()))).await;
    (gate, server, count)
}

#[tokio::test]
async fn a_request_that_breaks_off_claims_nothing() {
    let (gate, server, count) = watched().await;
    for framing in [
        "content-length: 4\r\n\r\nbo",
        "transfer-encoding: chunked\r\n\r\n2\r\nbo\r\n",
        "transfer-encoding: chunked\r\n\r\n2\r\nbo\r\nno chunk\r\n",
    ] {
        let mut wire = Wire::to(&server).await;
        wire.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n").await;
        wire.send(format!("idempotency-key: k\r\n{framing}")).await;
        wire.end().await;
        let heard = wire.hear_all().await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 400 "), "{heard}");
    }
    assert_eq!((count.get(), gate.calls("now"), gate.calls("claim")), (0, 0, 0));
    let whole = server.post("/echo", "k", "body").send().await;
    assert_eq!((whole.text(), whole.is_replay(), count.get()), ("body", false, 1));
}

#[tokio::test]
async fn a_request_that_breaks_off_over_http_2_claims_nothing() {
    let (gate, server, count) = watched().await;
    let server = server.by_http2();
    let body = made_of([data("bo"), broken()]);
    let cut = server.post("/echo", "k", "").body(body).open().await;
    assert!(cut.is_err() || cut.is_ok_and(|answer| answer.status() == 400));
    // The connection is the same, so the earlier data has been read when this is answered.
    server.post("/echo", "after", "x").send().await;
    assert_eq!((count.get(), gate.calls("claim")), (1, 1));
    let whole = server.post("/echo", "k", "body").send().await;
    assert_eq!((whole.text(), whole.is_replay(), count.get()), ("body", false, 2));
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_of_an_answer_changes_nothing() {
    let store = MemoryStore::new();
    let (feed, body) = fed();
    let (server, count) = answering(Some(sharing(store.clone())), "text/event-stream", once(body)).await;
    feed.send(data("data: 1\n\n")).unwrap();
    let mut first = server.post("/stream", "k", "{}").open().await.unwrap();
    next(&mut first).await;
    drop(first);
    // The server drops the stream when it cannot send any more.
    until(|| feed.send(data("data: more\n\n")).is_err()).await;
    assert_omitted(&server).await;
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn headers_that_are_too_large_to_record_are_left_out_with_the_body() {
    let count = Count::default();
    let counted = count.clone();
    let handler = post(move || async move {
        counted.up();
        let mut response = Response::builder();
        for number in 0..40 {
            response = response.header("link", format!("<{number}{}>", "x".repeat(2_000)));
        }
        response.status(201).body("charged".to_owned()).unwrap()
    });
    let server = Server::start(Router::new().route("/stream", handler).layer(layer())).await;
    let server = server.by_http2();
    let first = server.post("/stream", "k", "{}").open().await;
    // A client may refuse that many headers; the layer must not.
    if let Ok(first) = first {
        assert_eq!(first.headers().get_all("link").iter().count(), 40);
    }
    let again = server.post("/stream", "k", "{}").send().await;
    assert_eq!((again.status.as_u16(), again.text(), again.is_replay()), (201, "", true));
    assert_eq!(again.header("idempotency-replay"), Some("omitted"));
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_slow_answer_within_a_second_is_recorded_whole() {
    let trickle = || {
        let (feed, body) = fed();
        tokio::spawn(async move {
            for piece in ["one ", "two ", "three"] {
                tokio::time::sleep(Duration::from_millis(50)).await;
                feed.send(data(piece)).unwrap();
            }
        });
        body
    };
    let (server, count) = answering(Some(layer()), "text/plain", trickle).await;
    for (tries, key) in ["k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"].into_iter().enumerate() {
        let began = Instant::now();
        assert_eq!(server.post("/stream", key, "{}").send().await.text(), "one two three");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(150));
        let again = server.post("/stream", key, "{}").send().await;
        assert_eq!((again.is_replay(), count.get() as usize), (true, tries + 1));
        if again.text() == "one two three" {
            return;
        }
        // A busy machine may take that long by itself, but not always.
        assert!(took >= Duration::from_secs(1), "it was within a second");
    }
    panic!("it never was within a second");
}
