//! An upstream that is down, breaks off, or is too slow, and the fate of the key.

use std::time::Duration;

use testkit::ports::Port;
use tokio::net::TcpListener;

use crate::process::Setup;
use crate::stop::Stop;
use crate::upstream::{Act, Upstream, ok};
use crate::wire::Reply;

/// Checks the answer to a client while the outcome is unknown.
fn assert_held(reply: &Reply) {
    reply.problem(409, "idempotency_outcome_unknown");
}

#[tokio::test]
async fn a_refused_connection_releases_the_key() {
    let port = Port::reserve().unwrap();
    let gateway = Setup::before(port.address()).start().await;
    for _ in 0..2 {
        gateway.post("k", "{}").await.problem(502, "upstream_unreachable");
    }
    let listener = TcpListener::bind(port.address()).await.unwrap();
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) = socket.split();
        let mut head = vec![0; 4096];
        let read = tokio::io::AsyncReadExt::read(&mut reader, &mut head).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        tokio::io::AsyncWriteExt::write_all(&mut writer, answer).await.unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "ok".to_owned(), false));
    let head = serving.await.unwrap();
    assert!(head.contains("semel-attempt: 3"), "{head}");
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "ok".to_owned(), true));
}

#[tokio::test]
async fn an_upstream_that_is_lost_after_it_was_asked_holds_the_key() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    for (what, sent, code) in [
        ("before any byte", String::new(), "upstream_lost"),
        ("within the head", head.to_owned(), "upstream_lost"),
        ("after the head", format!("{head}Content-Length: 10\r\n\r\n"), "upstream_broke_off"),
        ("within the body", format!("{head}Content-Length: 10\r\n\r\nhello"), "upstream_broke_off"),
        ("within a chunked body", chunked.clone(), "upstream_broke_off"),
        ("within a chunk", format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhel"), "upstream_broke_off"),
        ("within the size of a chunk", format!("{chunked}f"), "upstream_broke_off"),
        ("before the last line", format!("{chunked}0\r\n"), "upstream_broke_off"),
        ("with what is not HTTP", "hello\r\n\r\n".to_owned(), "upstream_malformed"),
        (
            "with two lengths",
            format!("{head}Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"),
            "upstream_malformed",
        ),
        ("with no status", "HTTP/1.1 abc OK\r\n\r\n".to_owned(), "upstream_malformed"),
        (
            "with a chunk of no size",
            format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "upstream_broke_off",
        ),
        (
            "after an interim answer",
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n".to_owned(),
            "upstream_lost",
        ),
    ] {
        let upstream = Upstream::start(move |_| {
            let sent = sent.clone();
            async move { Act::Last(sent.into_bytes()) }
        })
        .await;
        let gateway = Setup::before(upstream.address).start().await;
        let first = gateway.post("k", "{}").await;
        assert!(first.text().contains(&format!("\"{code}\"")), "{what}: {}", first.text());
        assert_eq!(first.status, 502, "{what}");
        assert_eq!(first.header("content-type"), Some("application/problem+json"), "{what}");
        assert_held(&gateway.post("k", "{}").await);
        assert_eq!(upstream.count(), 1, "{what}");
    }
}

#[tokio::test]
async fn under_retry_a_lost_upstream_is_asked_again() {
    let upstream = Upstream::start(|seen| async move {
        match seen.number {
            1 => Act::Last(Vec::new()),
            _ => ok(&seen),
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--policy", "retry").start().await;
    gateway.post("k", "{}").await.problem(502, "upstream_lost");
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 2".to_owned(), false));
    assert_eq!(upstream.seen()[1].header("semel-attempt"), Some("2"));
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_holds_the_key() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--upstream-timeout", "1s").start().await;
    gateway.post("k", "{}").await.problem(504, "upstream_timeout");
    stop.arrival().await;
    assert_held(&gateway.post("k", "{}").await);
    stop.go();
    assert_held(&gateway.post("k", "{}").await);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_slow_body_is_waited_for() {
    let upstream = Upstream::raw(|mut line| async move {
        while line.request().await.is_some() {
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n").await;
            for byte in "0123456789".as_bytes() {
                // The upload is as slow as a test can be, and slower than the upstream may be with
                // its head.
                tokio::time::sleep(Duration::from_millis(220)).await;
                line.send([*byte]).await;
            }
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--upstream-timeout", "2s").start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "0123456789".to_owned(), false));
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "0123456789".to_owned(), true));
}

#[tokio::test]
async fn an_upstream_that_closes_its_connections_costs_no_key() {
    // The upstream closes after each answer without announcing it.
    let upstream = Upstream::start(|seen| async move {
        match ok(&seen) {
            Act::Answer(bytes) | Act::Last(bytes) => Act::Last(bytes),
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    for number in 1..=100 {
        let reply = gateway.post(&format!("k{number}"), "{}").await;
        assert_eq!(reply.told(), (200, format!("run {number}"), false));
    }
}

#[tokio::test]
async fn connections_to_the_upstream_are_kept() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    // All requests use one connection, which stays on its thread; each thread has upstream
    // connections of its own.
    let mut wire = gateway.wire().await;
    for number in 1..=20 {
        let fields = format!("Idempotency-Key: k{number}\r\n");
        wire.send(crate::wire::request("POST /charges", &fields, b"{}")).await;
        assert_eq!(wire.reply().await.status, 200);
    }
    assert_eq!((upstream.count(), upstream.connections()), (20, 1));
}

#[tokio::test]
async fn interim_answers_are_passed_over_and_the_final_one_counts() {
    let upstream = Upstream::start(|_| async {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n";
        Act::Answer(format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").into_bytes())
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "ok".to_owned(), false));
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "ok".to_owned(), true));
}

#[tokio::test]
async fn an_upstream_that_switches_protocols_unasked_is_lost() {
    let upstream = Upstream::start(|_| async {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
        Act::Last(switch.as_bytes().to_vec())
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    gateway.ask("POST /charges", "", "{}").await.problem(502, "upstream_lost");
    gateway
        .ask("GET /charges", "Upgrade: x\r\nConnection: upgrade\r\n", "")
        .await
        .problem(502, "upstream_lost");
    gateway.post("k", "{}").await.problem(502, "upstream_lost");
    assert_held(&gateway.post("k", "{}").await);
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn an_answer_before_the_request_was_read_is_passed_on() {
    let upstream = Upstream::raw(|mut line| async move {
        line.head().await;
        line.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
            .await;
        while line.read().await {}
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let body = "x".repeat(900_000);
    let first = gateway.post("k", &body).await;
    assert_eq!(first.told(), (413, "big".to_owned(), false));
    assert_eq!(gateway.post("k", &body).await.told(), (413, "big".to_owned(), true));
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn large_headers_of_an_answer_reach_the_first_caller() {
    let upstream = Upstream::start(|_| async {
        crate::upstream::answer("200 OK", &format!("ETag: \"{}\"\r\n", "e".repeat(60_000)), "ok")
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let first = gateway.post("k", "{}").await;
    assert_eq!((first.status, first.header("etag").map(str::len)), (200, Some(60_002)));
    let again = gateway.post("k", "{}").await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn bytes_behind_an_answer_are_not_the_answer_to_another_request() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for (what, line, sent) in [
        ("a second answer", "POST /charges", format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{evil}")),
        (
            "a second answer to chunks",
            "POST /charges",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{evil}"),
        ),
        ("a body where there is none", "POST /charges", format!("HTTP/1.1 204 No Content\r\n\r\n{evil}")),
        (
            "a body to HEAD",
            "HEAD /charges",
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{evil}", evil.len()),
        ),
    ] {
        let upstream = Upstream::start(move |_| {
            let sent = sent.clone();
            async move { Act::Answer(sent.into_bytes()) }
        })
        .await;
        let gateway = Setup::before(upstream.address).start().await;
        let mut wire = gateway.wire().await;
        for number in 0..30 {
            let fields = format!("Idempotency-Key: {number}\r\n");
            wire.send(crate::wire::request(line, &fields, b"")).await;
            let head = wire.try_head().await.expect("an answer");
            assert_ne!(head.header("content-length"), Some("4"), "{what}: {}", wire.text());
            match head.header("content-length") {
                Some("2") => drop(wire.hear("ok").await),
                _ if head.header("transfer-encoding").is_some() => drop(wire.hear("0\r\n\r\n").await),
                _ => {}
            }
        }
        assert!(wire.text().is_empty(), "{what}: {}", wire.text());
        assert_eq!(upstream.count(), 30, "{what}");
    }
}

#[tokio::test]
async fn a_key_is_released_when_there_is_no_connection_in_time() {
    // The upstream accepts connections, and never performs the handshake: nothing of the request is
    // sent.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let gateway = Setup::new().with("--upstream", &url).with("--upstream-timeout", "150ms").start().await;
    for _ in 0..2 {
        gateway.post("k", "{}").await.problem(502, "upstream_unreachable");
    }
}

#[tokio::test]
async fn an_upstream_that_closes_before_it_is_asked_releases_the_key() {
    let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", closing.local_addr().unwrap());
    let closes = tokio::spawn(async move {
        while let Ok((socket, _)) = closing.accept().await {
            drop(socket);
        }
    });
    let gateway = Setup::new().with("--upstream", &url).start().await;
    for _ in 0..2 {
        gateway.post("k", "{}").await.problem(502, "upstream_unreachable");
    }
    closes.abort();
}

/// A service may send its status before it has done its work. The first version of the gateway
/// recorded the status of a body of unknown length after a second, whatever followed.
#[tokio::test]
async fn an_answer_that_breaks_off_late_is_no_outcome() {
    let upstream = Upstream::raw(|mut line| async move {
        if line.request().await.is_some() {
            line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
            // The pause is longer than the gateway would wait for an endless stream.
            tokio::time::sleep(Duration::from_millis(1_300)).await;
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    gateway.post("k", "{}").await.problem(502, "upstream_broke_off");
    assert_held(&gateway.post("k", "{}").await);
}

#[tokio::test]
async fn an_answer_that_does_not_go_on_is_no_outcome() {
    let stop = Stop::default();
    let upstream = Upstream::raw({
        let stop = stop.clone();
        move |mut line| {
            let stop = stop.clone();
            async move {
                while line.request().await.is_some() {
                    line.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
                    stop.here().await;
                }
            }
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--upstream-timeout", "1s").start().await;
    gateway.post("k", "{}").await.problem(502, "upstream_broke_off");
    assert_held(&gateway.post("k", "{}").await);
    // Without a key the client gets the available part, and the end of the connection.
    let mut wire = gateway.wire().await;
    wire.send(crate::wire::request("POST /charges", "", b"{}")).await;
    assert!(wire.hear_all().await.ends_with("hello"));
}
