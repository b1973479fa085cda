//! Unrequested answers on kept connections.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::process::{BOUND, Setup, until};
use crate::stop::Stop;
use crate::upstream::{Act, Line, Upstream, ok};
use crate::wire::{Wire, request};
use testkit::certificates::Authority;

const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

/// Answers each request twice, the second time after this delay, before the next request is read.
async fn twice(mut line: Line, later: Duration) {
    while let Some(seen) = line.request().await {
        let (Act::Answer(bytes) | Act::Last(bytes)) = ok(&seen);
        line.send(bytes).await;
        tokio::time::sleep(later).await;
        line.send(EVIL).await;
    }
}

/// How the gateway speaks to the upstream.
const SPEECH: [&str; 2] = ["http", "https"];

/// An upstream with these connections, over TLS or not, and the settings of a gateway in front of
/// it.
async fn speaking<F, C>(scheme: &str, converse: F) -> (Upstream, Setup)
where
    F: Fn(Line) -> C + Clone + Send + Sync + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    if scheme == "http" {
        let upstream = Upstream::raw(converse).await;
        let setup = Setup::before(upstream.address);
        return (upstream, setup);
    }
    let authority = Authority::new("tests");
    let acceptor = authority.certify("localhost").acceptor();
    let greet = move |socket| {
        let acceptor = acceptor.clone();
        async move { acceptor.accept(socket).await.ok() }
    };
    let upstream = Upstream::over(greet, converse).await;
    let setup = Setup::new().with("--upstream", &format!("https://localhost:{}", upstream.address.port()));
    let ca = setup.write("ca.pem", &authority.pem()).display().to_string();
    (upstream, setup.with("--upstream-ca", &ca))
}

async fn post(wire: &mut Wire, key: usize) -> String {
    wire.send(request("POST /charges", &format!("Idempotency-Key: k{key}\r\n"), b"{}")).await;
    wire.reply().await.text()
}

/// Regression: a client had made the service see two requests in one. The second answer came a
/// little later, and was recorded under the key of the next request: 300 of 300 times.
#[tokio::test]
async fn an_answer_that_comes_while_a_connection_is_idle_goes_nowhere() {
    for (scheme, later) in SPEECH.into_iter().flat_map(|scheme| [0, 1, 10, 100].map(|later| (scheme, later)))
    {
        let later = Duration::from_millis(later);
        let (_upstream, setup) = speaking(scheme, move |line| twice(line, later)).await;
        let gateway = setup.start().await;
        let mut wire = gateway.wire().await;
        for key in 1..=5 {
            assert_eq!(post(&mut wire, key).await, format!("run {key}"), "{scheme} {later:?}");
            // The upstream has closed the connection once it has noticed that the gateway has.
            tokio::time::sleep(later + Duration::from_millis(30)).await;
        }
        for key in 1..=5 {
            assert_eq!(post(&mut wire, key).await, format!("run {key}"), "{scheme} {later:?}, replayed");
        }
    }
}

/// A second answer cannot be distinguished from the next one once the next request has been sent.
/// That happens once; from then on the upstream gets a new connection for each request.
#[tokio::test]
async fn an_upstream_that_was_caught_once_is_not_trusted_with_a_connection_that_is_kept() {
    for (scheme, later) in SPEECH.into_iter().flat_map(|scheme| [1, 10, 100].map(|later| (scheme, later))) {
        let later = Duration::from_millis(later);
        let (_upstream, setup) = speaking(scheme, move |line| twice(line, later)).await;
        let mut gateway = setup.start().await;
        let mut wire = gateway.wire().await;
        let mut evil = 0;
        for key in 1..=20 {
            evil += usize::from(post(&mut wire, key).await == "evil");
        }
        assert!(evil <= 1, "{evil} of 20 answers were those of another request, {scheme} {later:?}");
        gateway.line("no request had asked for").await;
        assert!(gateway.metric(&["semel_gateway_upstream_strays_total"]).await >= 1.0);
    }
}

/// Regression: each thread of the gateway has connections of its own to the upstream: each had to
/// catch it with an answer of its own, and a reload made all of them forget it.
#[tokio::test]
async fn an_upstream_that_was_caught_is_doubted_by_all_threads_and_after_a_reload() {
    let upstream = Upstream::raw(|line| twice(line, Duration::from_millis(20))).await;
    let mut gateway = Setup::before(upstream.address).start().await;
    let mut wire = gateway.wire().await;
    let began = Instant::now();
    while !gateway.log().contains("no request had asked for") {
        assert!(began.elapsed() < BOUND, "it is never caught");
        wire.send(request("GET /", "", b"")).await;
        wire.reply().await;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for reloaded in [false, true] {
        if reloaded {
            gateway.signal("HUP");
            gateway.line("the configuration was reloaded").await;
        }
        // Requests are dealt out in turn, so they reach all threads.
        for _ in 0..threads {
            let mut wire = gateway.wire().await;
            for _ in 0..3 {
                wire.send(request("GET /", "", b"")).await;
                assert_ne!(wire.reply().await.text(), "evil", "reloaded: {reloaded}");
            }
        }
    }
}

/// The upstream does this after its first answer, while the gateway is stopped; so the gateway
/// notices it and the next request at the same time.
async fn unheard(scheme: &str, act: &'static str, line: &str, fields: &str) {
    let stop = Stop::default();
    let stops = stop.clone();
    let (upstream, setup) = speaking(scheme, move |mut line| {
        let stop = stops.clone();
        async move {
            while let Some(seen) = line.request().await {
                let (Act::Answer(bytes) | Act::Last(bytes)) = ok(&seen);
                line.send(bytes).await;
                if seen.number == 1 {
                    stop.here().await;
                    if act.is_empty() {
                        drop(line);
                        return stop.here().await;
                    }
                    line.send(act).await;
                    stop.here().await;
                }
            }
        }
    })
    .await;
    let gateway = setup.start().await;
    let mut wire = gateway.wire().await;
    assert_eq!(post(&mut wire, 1).await, "run 1");
    stop.arrival().await;
    gateway.signal("STOP");
    until("it stands still", || gateway.is_stopped()).await;
    stop.go();
    stop.arrival().await;
    let body: &[u8] = if line.starts_with("GET") { b"" } else { b"{}" };
    wire.send(request(line, fields, body)).await;
    gateway.signal("CONT");
    assert_eq!(wire.reply().await.told(), (200, "run 2".to_owned(), false), "{scheme}");
    assert_eq!((upstream.count(), upstream.connections()), (2, 2));
}

/// The socket is checked before a request is written, because the runtime may not have reported the
/// bytes that have arrived.
#[tokio::test]
async fn an_answer_that_arrived_unheard_is_not_the_answer_to_the_next_request() {
    for scheme in SPEECH.repeat(5) {
        unheard(scheme, EVIL, "POST /charges", "Idempotency-Key: k2\r\n").await;
    }
}

/// Regression: such a request was lost, and its key held, although nothing of it had been sent.
#[tokio::test]
async fn a_connection_that_was_closed_unheard_costs_no_key() {
    for scheme in SPEECH.repeat(5) {
        unheard(scheme, "", "POST /charges", "Idempotency-Key: k2\r\n").await;
    }
}

/// Regression: without a key and without a body, such a request got a 502, although nothing of it
/// had been sent.
#[tokio::test]
async fn a_connection_that_was_closed_unheard_costs_no_request_without_a_body() {
    for scheme in SPEECH.repeat(5) {
        unheard(scheme, "", "GET /charges", "").await;
    }
}

/// Tickets and other messages of TLS itself are not answers: connections are kept.
#[tokio::test]
async fn a_connection_over_tls_is_used_again() {
    let (upstream, setup) = speaking("https", |mut line| async move {
        while let Some(seen) = line.request().await {
            let (Act::Answer(bytes) | Act::Last(bytes)) = ok(&seen);
            line.send(bytes).await;
        }
    })
    .await;
    let gateway = setup.start().await;
    let mut wire = gateway.wire().await;
    for key in 1..=10 {
        assert_eq!(post(&mut wire, key).await, format!("run {key}"));
    }
    assert_eq!(upstream.connections(), 1);
    assert!(!gateway.log().contains("no request had asked for"), "{}", gateway.log());
}
