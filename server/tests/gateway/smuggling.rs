//! Requests that two servers could read differently. The second request that hides in each of them
//! must never be seen.

use crate::process::{Gateway, Setup};
use crate::upstream::Upstream;
use crate::wire::{Reply, request};

/// The request that an attacker wants to smuggle.
const HIDDEN: &str = "POST /hidden HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n";

async fn setup() -> (Upstream, Gateway) {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    (upstream, gateway)
}

/// Sends these bytes, followed by the hidden request, and reads everything, which must be a
/// refusal.
async fn refused(upstream: &Upstream, gateway: &Gateway, sent: &[u8]) -> Reply {
    let what = sent.escape_ascii();
    let mut wire = gateway.wire().await;
    wire.send([sent, HIDDEN.as_bytes()].concat()).await;
    let reply = wire.try_reply().await.unwrap_or_else(|| panic!("no answer to {what}"));
    assert!(!wire.read().await, "{what}: {}", wire.text());
    let seen = upstream.bytes();
    assert!(!seen.windows(6).any(|six| six == b"hidden"), "{what}: {}", seen.escape_ascii());
    reply
}

#[tokio::test]
async fn a_request_framed_in_two_ways_is_refused_and_its_connection_closed() {
    let (upstream, gateway) = setup().await;
    let mut rows: Vec<(String, &str)> = Vec::new();
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 5\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        " Content-Length: 5\r\n",
        "Content-Length: 5\r\n\tX: y\r\n",
        "X: y\r\n Content-Length: 5\r\n",
        "X: y\nContent-Length: 5\r\n",
        "X: y\rContent-Length: 5\r\n",
        "X: y\r\r\nContent-Length: 5\r\n",
        "X: y\0Content-Length: 5\r\n",
        "X\0: y\r\nContent-Length: 5\r\n",
        "Content-Length: 5\0\r\n",
        "Content_Length\x0b: 5\r\n",
        ": y\r\nContent-Length: 5\r\n",
        "y\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: \x0cchunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer\x0b-Encoding: chunked\r\n",
        "Transfer-Encoding\n: chunked\r\n",
    ] {
        rows.push((format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), "0\r\n\r\n"));
    }
    for head in [
        "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a HTTP/1.1\nHost: a\nContent-Length: 5\n\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\n\r\n",
        " POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST  /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1 \r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.2\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/2.0\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a http/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "PO ST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "PO\0ST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a\0b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nhost: b\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost:\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a b\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: u@a\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a/b\r\nContent-Length: 5\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a, b\r\nContent-Length: 5\r\n\r\n",
        "POST http://u@b/a HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\n",
        "POST http:///a HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
    ] {
        rows.push((head.to_owned(), "0\r\n\r\n"));
    }
    for named in [
        "idempotency-key",
        "close, Idempotency-Key",
        "Host",
        "content-length",
        "Transfer-Encoding",
        "cookie,x-user",
    ] {
        let fields =
            format!("Connection: {named}\r\nIdempotency-Key: k\r\nX-User: ann\r\nContent-Length: 5\r\n");
        rows.push((format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), "0\r\n\r\n"));
    }
    for (head, body) in rows {
        let reply = refused(&upstream, &gateway, format!("{head}{body}").as_bytes()).await;
        assert_eq!(reply.status, 400, "{}", head.escape_debug());
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn chunks_that_are_not_what_they_say_are_refused_and_what_follows_is_not_read() {
    let (upstream, gateway) = setup().await;
    let bodies = [
        "5\r\nhello0\r\n\r\n",
        "5\r\nhell\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\n\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\x0b\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        ";x=y\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5;x=\ny\r\nhello\r\n0\r\n\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\n X: folded\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
    ];
    for body in bodies {
        let head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: k\r\n\r\n";
        let reply = refused(&upstream, &gateway, format!("{head}{body}").as_bytes()).await;
        reply.problem(400, "request_unreadable");
    }
    assert_eq!(upstream.connections(), 0, "nothing was claimed for them");
    for body in bodies {
        // Without a key the head has already been passed on; the request must not be completed.
        let head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reply = refused(&upstream, &gateway, format!("{head}{body}").as_bytes()).await;
        assert_eq!(reply.status, 400, "{}", body.escape_debug());
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn methods_that_are_not_for_a_gateway_are_refused() {
    let (upstream, gateway) = setup().await;
    for head in ["TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"] {
        refused(&upstream, &gateway, head.as_bytes()).await.problem(405, "method_refused");
    }
    let upgrade = "Upgrade: websocket\r\nConnection: upgrade\r\nIdempotency-Key: k\r\n";
    gateway.ask("POST /charges", upgrade, "").await.problem(400, "upgrade_refused");
    gateway
        .ask("POST /charges", "Upgrade: h2c\r\nConnection: upgrade\r\n", "")
        .await
        .problem(400, "upgrade_refused");
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_preface_of_http_2_in_the_middle_opens_no_back_door() {
    let (upstream, gateway) = setup().await;
    for before in ["\r\n", "GET /first HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut wire = gateway.wire().await;
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        wire.send(format!("{before}{preface}{HIDDEN}Content-Length: 1\nTransfer-Encoding: x\n{HIDDEN}"))
            .await;
        wire.hear_all().await;
    }
    let seen = upstream.bytes();
    assert!(!seen.windows(6).any(|six| six == b"hidden"), "{}", seen.escape_ascii());
}

#[tokio::test]
async fn paths_are_passed_on_as_the_bytes_they_are() {
    let (upstream, gateway) = setup().await;
    let paths = [
        "/a//b",
        "//a",
        "//evil.example/a",
        "/%2e%2e/a",
        "/../a",
        "/./a",
        "/a/..;/b",
        "/a%00b",
        "/a%0d%0ab",
        "/A%2fb",
        "/a?b?c&%26=%3d",
        "/a?",
        "/?",
        "/a;b=c",
        "/a\\b",
        "/a%",
        "/a|b",
        "/{a}",
    ];
    for path in paths {
        for replayed in [false, true] {
            let reply = gateway
                .ask(
                    &format!("POST {path}"),
                    &format!("Idempotency-Key: \"{}\"\r\n", path.replace('\\', "-")),
                    "",
                )
                .await;
            assert_eq!((reply.status, reply.is_replay()), (200, replayed), "{path}");
        }
        assert_eq!(upstream.seen().last().unwrap().line(), format!("POST {path} HTTP/1.1"));
    }
    assert_eq!(upstream.count(), paths.len());
}

#[tokio::test]
async fn the_host_of_an_absolute_target_is_the_one_that_counts() {
    let (upstream, gateway) = setup().await;
    let mut wire = gateway.wire().await;
    wire.send("GET http://b.example:81/a?c HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert_eq!(wire.reply().await.status, 200);
    let seen = &upstream.seen()[0];
    assert_eq!((seen.line(), seen.all("host")), ("GET /a?c HTTP/1.1", vec!["b.example:81"]));
}

#[tokio::test]
async fn requests_in_one_piece_are_answered_in_their_order() {
    let (upstream, gateway) = setup().await;
    let mut wire = gateway.wire().await;
    let keyed = |key: &str| request("POST /charges", &format!("Idempotency-Key: {key}\r\n"), key.as_bytes());
    wire.send(
        [keyed("a"), keyed("b"), keyed("a"), b"\r\n".to_vec(), keyed("c"), request("GET /d", "", b"")]
            .concat(),
    )
    .await;
    for (run, replayed) in [(1, false), (2, false), (1, true), (3, false), (4, false)] {
        assert_eq!(wire.reply().await.told(), (200, format!("run {run}"), replayed));
    }
    let bodies: Vec<_> =
        upstream.seen().iter().map(|seen| String::from_utf8(seen.body.clone()).unwrap()).collect();
    assert_eq!(bodies, ["a", "b", "c", ""]);
    // A refusal comes in the order of the requests.
    wire.send([keyed("e"), b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(wire.reply().await.status, 200);
    assert_eq!(wire.reply().await.status, 400);
    assert!(!wire.read().await);
}

#[tokio::test]
async fn the_unread_rest_of_a_refused_request_is_not_the_next_request() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--max-body", "100").start().await;
    assert_eq!(gateway.post("used", "{}").await.status, 200);
    let small = HIDDEN.to_owned();
    let large = HIDDEN.repeat(40_000);
    for body in [small, large] {
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        for (key, status) in [("\"\"", 400), ("k", 413), ("used", if body.len() < 100 { 422 } else { 413 })] {
            for (framing, sent) in [
                (format!("Content-Length: {}", body.len()), &body),
                ("Transfer-Encoding: chunked".to_owned(), &chunked),
            ] {
                let mut wire = gateway.wire().await;
                let head = format!(
                    "POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\n{framing}\r\n\r\n"
                );
                let status = if body.len() < 100 && status == 413 { 200 } else { status };
                // The gateway may close before it has read everything.
                let _closed = wire.try_send(format!("{head}{sent}")).await;
                if let Some(reply) = wire.try_reply().await {
                    assert_eq!(reply.status, status, "{key} {framing}");
                }
                // The following bytes are either a request again, or not read at all.
                if wire.try_send(request("GET /next", "Connection: close\r\n", b"")).await.is_some() {
                    let rest = wire.hear_all().await;
                    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 200 OK"), "{rest}");
                }
            }
        }
    }
    assert!(upstream.seen().iter().all(|seen| !seen.line().contains("hidden")));
}
