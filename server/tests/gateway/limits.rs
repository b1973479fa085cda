//! Clients that take more than their share: of attempts, of the upstream, of keys.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Gateway, Setup, until};
use crate::stop::Stop;
use crate::upstream::Upstream;
use crate::wire::request;

const ATTEMPTS: usize = 5;

fn posted(key: &str) -> Vec<u8> {
    request("POST /charges", &format!("Idempotency-Key: {key}\r\n"), b"{}")
}

/// The budget of memory where attempts are limited.
const MEMORY: u64 = 4 << 20;

/// A gateway with a small limit of attempts for a few clients, with one done key, and its memory in
/// use by then.
async fn setup() -> (Upstream, Stop, Gateway, u64) {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--max-connections", "10").with("--max-memory", "4MiB");
    let gateway = setup.with("--max-attempts", &ATTEMPTS.to_string()).start().await;
    stop.go();
    assert_eq!(gateway.post("done", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    (upstream, stop, gateway, before)
}

/// Checks that recorded outcomes are replayed with no attempt left, and that further attempts run
/// when running ones end.
async fn recovers(upstream: &Upstream, stop: &Stop, gateway: &Gateway, before: u64) {
    gateway.stays_within(before, MEMORY);
    // The first request may have had a connection of its own.
    assert!(upstream.connections() <= 1 + ATTEMPTS, "{} connections", upstream.connections());
    assert_eq!(gateway.post("done", "{}").await.told(), (200, "run 1".to_owned(), true));
    gateway.post("done", "other").await.problem(422, "idempotency_key_reused");
    gateway.post("0", "{}").await.problem(409, "idempotency_key_pending");
    assert_eq!(upstream.count(), 1 + ATTEMPTS);
    for _ in 0..=ATTEMPTS {
        stop.go();
    }
    let began = std::time::Instant::now();
    while gateway.post("later", "{}").await.status != 200 {
        assert!(began.elapsed() < BOUND, "no attempt ends");
    }
}

/// Regression: ten connections made 586 requests upstream: a client that disconnects leaves its
/// attempt running.
#[tokio::test]
async fn clients_that_hang_up_and_come_again_leave_no_more_requests_upstream_than_attempts() {
    let (upstream, stop, gateway, before) = setup().await;
    for number in 0..200 {
        let mut wire = gateway.wire().await;
        wire.send(posted(&number.to_string())).await;
        if number < ATTEMPTS {
            until("it is upstream", || upstream.count() == number + 2).await;
        } else {
            let refused = wire.reply().await;
            refused.problem(503, "too_many_attempts");
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
    }
    recovers(&upstream, &stop, &gateway, before).await;
}

/// Regression: one HTTP/2 connection made 2,001 requests upstream by resetting its streams.
#[tokio::test]
async fn streams_that_are_reset_leave_no_more_requests_upstream_than_attempts() {
    let (upstream, stop, gateway, before) = setup().await;
    let io = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let (mut sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for number in 0..300 {
        let request =
            Request::post("http://shop.example/charges").header("idempotency-key", number.to_string());
        let mut answer = Box::pin(sender.send_request(request.body(Full::new(Bytes::from("{}"))).unwrap()));
        if number < ATTEMPTS {
            tokio::select! {
                answer = &mut answer => panic!("answered: {answer:?}"),
                () = until("it is upstream", || upstream.count() == number + 2) => {}
            }
        } else {
            let refused = tokio::time::timeout(BOUND, answer).await.expect("in time").unwrap();
            assert_eq!(refused.status(), 503);
            let problem = refused.into_body().collect().await.unwrap().to_bytes();
            assert!(String::from_utf8_lossy(&problem).contains("too_many_attempts"));
        }
    }
    recovers(&upstream, &stop, &gateway, before).await;
}

/// Such a request cannot be repeated, and nothing of it is recorded.
#[tokio::test]
async fn a_request_without_a_key_ends_with_its_client() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let upstream = Upstream::raw(move |mut line| {
        let ended = ended.clone();
        async move {
            line.request().await;
            // There is no answer; the connection ends.
            line.request().await;
            ended.send(()).expect("the test listens");
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "2").start().await;
    for number in 1..=5 {
        let mut wire = gateway.wire().await;
        wire.send(request("POST /charges", "", b"{}")).await;
        until("it is upstream", || upstream.count() == number).await;
        drop(wire);
        let end = tokio::time::timeout(BOUND, ends.recv()).await;
        end.expect("its connection to the upstream ends").expect("the upstream goes on");
    }
}

#[tokio::test]
async fn one_connection_has_no_more_requests_passed_on_than_there_may_be_connections() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "3").start().await;
    let io = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let (mut sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut ask = || {
        let request =
            Request::post("http://shop.example/charges").body(Full::new(Bytes::from("{}"))).unwrap();
        tokio::spawn(sender.send_request(request))
    };
    let passed: Vec<_> = (0..3).map(|_| ask()).collect();
    until("all are upstream", || upstream.count() == 3).await;
    for _ in 0..5 {
        let refused = ask().await.unwrap().unwrap();
        assert_eq!(
            (refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()),
            (503, b"1".as_slice())
        );
    }
    (0..3).for_each(|_| stop.go());
    for passed in passed {
        assert_eq!(passed.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(upstream.count(), 3);
}

/// The answer to a POST may come before the client has sent its body, and a service such as Node
/// then goes on reading it.
#[tokio::test]
async fn a_body_that_goes_on_after_its_answer_takes_the_place_of_a_connection() {
    let (come, mut came) = mpsc::unbounded_channel();
    let upstream = Upstream::raw(move |mut line| {
        let come = come.clone();
        async move {
            line.head().await;
            line.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
            while line.read().await {}
            come.send(()).expect("the test listens");
        }
    })
    .await;
    let setup = Setup::before(upstream.address).with("--body-timeout", "10s");
    let gateway = setup.with("--max-connections", "3").start().await;
    let client = Client::new(&gateway).await;
    let post = || http::Request::post("http://shop.example/none").body(Pieces::endless("x".repeat(1_000)));
    let mut answers = Vec::new();
    for status in [404, 404, 404, 503, 503] {
        let answer = client.ask(post().unwrap()).await;
        assert_eq!(answer.status(), status);
        answers.push(answer);
    }
    assert_eq!(upstream.connections(), 3);
    client.connection.abort();
    drop((answers, client));
    for _ in 0..3 {
        tokio::time::timeout(BOUND, came.recv())
            .await
            .expect("its connection ends")
            .expect("the upstream goes on");
    }
    let began = std::time::Instant::now();
    while gateway.ask("POST /none", "", "{}").await.status != 404 {
        assert!(began.elapsed() < BOUND, "the places are not free again");
    }
}

/// The limit of streams is looked at when a request begins, and again before it is sent.
#[tokio::test]
async fn requests_that_were_read_meanwhile_do_not_become_streams_beyond_the_limit() {
    let upstream = Upstream::raw(|mut line| async move {
        while line.request().await.is_some() {
            line.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .await;
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--max-connections", "2").start().await;
    let mut wire = gateway.wire().await;
    wire.send(
        "POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: late\r\n\
         Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    )
    .await;
    assert_eq!(wire.try_head().await.unwrap().status, 100);
    let client = Client::new(&gateway).await;
    let mut streams = Vec::new();
    for number in 0..2 + 64 {
        let stream = client.ask(keyed(&number.to_string(), Pieces::whole("{}"))).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    assert_eq!(client.ask(keyed("next", Pieces::whole("{}"))).await.status(), 503);
    wire.send("{}").await;
    let refused = wire.reply().await;
    refused.problem(503, "gateway_busy");
    assert_eq!((refused.header("retry-after"), upstream.count()), (Some("1"), 2 + 64));
    // Nothing was sent, so the key is free.
    drop(streams);
    let began = std::time::Instant::now();
    loop {
        let answer = client.ask(keyed("late", Pieces::whole("{}"))).await;
        match answer.status().as_u16() {
            200 => break,
            503 => assert!(began.elapsed() < BOUND, "it stays busy"),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_caller_over_its_quota_gets_429_until_its_keys_are_settled() {
    let (upstream, stop) = Upstream::stopping().await;
    let gateway = Setup::before(upstream.address).with("--max-unsettled-per-caller", "1").start().await;
    let ask = async |caller: &str, key: &str| {
        let fields = format!("Authorization: Bearer {caller}\r\nIdempotency-Key: {key}\r\n");
        gateway.ask("POST /charges", &fields, "{}").await
    };
    let first = async { ask("ann", "a").await };
    let others = async {
        stop.arrival().await;
        let refused = ask("ann", "b").await;
        refused.problem(429, "idempotency_quota_exceeded");
        assert_eq!(refused.header("retry-after"), Some("1"));
        ask("ann", "a").await.problem(409, "idempotency_key_pending");
        (0..3).for_each(|_| stop.go());
        assert_eq!(ask("ben", "b").await.status, 200);
    };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!(first.status, 200);
    assert_eq!(ask("ann", "b").await.status, 200);
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn a_caller_of_too_many_new_keys_gets_429_and_its_replays() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--max-new-per-caller", "2/1h").start().await;
    for key in ["a", "b"] {
        assert_eq!(gateway.post(key, "{}").await.status, 200);
    }
    let refused = gateway.post("c", "{}").await;
    refused.problem(429, "idempotency_quota_exceeded");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1_000..=1_800).contains(&seconds), "{seconds}");
    assert!(gateway.post("a", "{}").await.is_replay());
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_to_what_the_settings_need() {
    let upstream = Upstream::counting().await;
    let setup =
        Setup::before(upstream.address).with("--max-connections", "200").with("--max-attempts", "100");
    let mut gateway = setup.start_after("ulimit -Sn 256").await;
    assert!(gateway.open_files() >= 2 * 200 + 100, "{}", gateway.open_files());
    assert_eq!(gateway.post("a", "{}").await.status, 200);
    assert!(!gateway.log().contains("the limit of open files"), "{}", gateway.log());
    let mut limited = setup.start_after("ulimit -n 256").await;
    assert_eq!(limited.open_files(), 256);
    limited
        .line("the limit of open files is lower than what max-connections and max-attempts may need")
        .await;
    assert!(!gateway.has_ended() && !limited.has_ended());
}
