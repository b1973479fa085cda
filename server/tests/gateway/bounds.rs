//! Memory: the gateway stays within its budget, whatever its clients do.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Gateway, Setup};
use crate::upstream::{Upstream, answer};

const MIB: usize = 1 << 20;
/// The memory that the gateway may need beside its budget.
const BESIDE: u64 = 32 << 20;

/// A gateway with little memory that has served a request, and its memory in use by then.
async fn little(setup: Setup, memory: &str) -> (Gateway, u64) {
    let gateway = setup.with("--max-memory", memory).start().await;
    assert_eq!(gateway.post("warm", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    (gateway, before)
}

#[track_caller]
fn stays_within(gateway: &Gateway, before: u64, budget: u64) {
    let peak = gateway.peak_bytes();
    println!("{} KiB at rest, {} KiB more at most", before >> 10, (peak - before) >> 10);
    assert!(peak < before + budget + BESIDE, "{peak} bytes, and {before} at rest");
}

/// A head that declares a body of this length.
fn declared(key: &str, length: usize) -> String {
    format!("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test]
async fn bodies_of_many_connections_stay_within_the_budget() {
    let upstream = Upstream::counting().await;
    let (gateway, before) = little(Setup::before(upstream.address), "16MiB").await;
    let mut clients = JoinSet::new();
    for client in 0..400 {
        let mut wire = gateway.wire().await;
        clients.spawn(async move {
            let sent = wire.try_send(declared(&client.to_string(), MIB)).await;
            // The client sends almost all of it, and then nothing more.
            let sent = match sent {
                Some(()) => wire.try_send(vec![b'x'; MIB - 1]).await,
                None => None,
            };
            let reply = wire.try_reply().await;
            (sent.is_some(), reply.map(|reply| reply.status))
        });
    }
    let (mut refused, mut slow) = (0, 0);
    while let Some(told) = clients.join_next().await {
        match told.unwrap() {
            (_, Some(503)) | (false, None) => refused += 1,
            (_, Some(408)) => slow += 1,
            // The refusal may be lost on its way, because the client went on sending.
            (true, None) => refused += 1,
            (_, Some(other)) => panic!("{other}"),
        }
    }
    println!("{refused} refused, {slow} too slow");
    assert!(slow >= 1 && refused > slow);
    stays_within(&gateway, before, 16 << 20);
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn bodies_of_many_streams_stay_within_the_budget() {
    let upstream = Upstream::counting().await;
    let (gateway, before) = little(Setup::before(upstream.address), "16MiB").await;
    let body = bytes::Bytes::from(vec![b'x'; MIB - 1]);
    let mut asked = JoinSet::new();
    let mut clients = Vec::new();
    for client in 0..4 {
        let connection = Client::new(&gateway).await;
        for stream in 0..100 {
            let key = format!("{client}-{stream}");
            asked.spawn(connection.asking(keyed(&key, Pieces::endless(body.clone()))));
        }
        clients.push(connection);
    }
    let mut refused = 0;
    while let Some(told) = asked.join_next().await {
        match told.unwrap().map(|response| response.status().as_u16()) {
            Some(503) => refused += 1,
            Some(408) | None => {}
            Some(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0);
    stays_within(&gateway, before, 16 << 20);
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn clients_that_declare_much_and_drip_do_not_block_other_clients() {
    let upstream = Upstream::counting().await;
    let (gateway, before) = little(Setup::before(upstream.address), "16MiB").await;
    let mut clients = JoinSet::new();
    for client in 0..300 {
        let mut wire = gateway.wire().await;
        wire.send(declared(&client.to_string(), MIB)).await;
        clients.spawn(async move {
            // The client sends a byte now and then, until there is an answer.
            loop {
                let _closed = wire.try_send("x").await;
                if let Ok(reply) = timeout(Duration::from_millis(500), wire.try_reply()).await {
                    return reply.map(|reply| reply.status);
                }
            }
        });
    }
    let began = Instant::now();
    let reply = gateway.post("k", "{}").await;
    println!("served within {:?}", began.elapsed());
    assert_eq!(reply.told(), (200, "run 2".to_owned(), false));
    // Each of the other requests ends, long before the timeout of a body.
    while let Some(told) = clients.join_next().await {
        assert!(matches!(told.unwrap(), Some(408) | None));
    }
    assert!(began.elapsed() < BOUND - Duration::from_secs(5), "{:?}", began.elapsed());
    stays_within(&gateway, before, 16 << 20);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn without_room_nothing_is_claimed_and_repeats_do_not_wait() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--max-memory", "4MiB").with("--wait", "5m");
    let gateway = setup.with("--upstream-timeout", "5m").start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    let repeat = gateway.posting("k", "{}");
    // Bodies that wait for the upstream fill the 2 MiB for requests, except for 8 steps of 8 KiB.
    // Each of them has twice its room, which it needs while it is joined.
    let mut full = Vec::new();
    for steps in [127, 63, 32, 16, 8] {
        let body = "x".repeat(steps * (8 << 10) - 4_096);
        full.push(gateway.posting(&format!("{steps} steps"), &body));
        stop.arrival().await;
    }
    repeat.await.unwrap().unwrap().problem(409, "idempotency_key_pending");
    let refused = gateway.post("new", &"x".repeat(100_000)).await;
    refused.problem(503, "memory_exhausted");
    assert_eq!(refused.header("retry-after"), Some("1"));
    stop.go();
    assert_eq!(first.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), false));
    // The same key with another body was never claimed.
    for _ in 0..=full.len() {
        stop.go();
    }
    for reply in full {
        assert_eq!(reply.await.unwrap().unwrap().status, 200);
    }
    let began = Instant::now();
    loop {
        let reply = gateway.post("new", &"y".repeat(100_000)).await;
        if reply.status == 200 {
            break;
        }
        reply.problem(503, "memory_exhausted");
        assert!(began.elapsed() < BOUND, "there is no room again");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(upstream.count(), 7);
}

#[tokio::test]
async fn answers_of_attempts_wait_for_room_and_are_recorded_whole() {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    // There is room for two of them.
    let (gateway, before) = little(Setup::before(upstream.address), "4MiB").await;
    let asked: Vec<_> = (0..20).map(|key| gateway.posting(&format!("key {key}"), "{}")).collect();
    for reply in asked {
        let reply = reply.await.unwrap().expect("an answer");
        assert_eq!((reply.status, reply.body.len()), (200, MIB - 100));
    }
    for key in 0..20 {
        let reply = gateway.post(&format!("key {key}"), "{}").await;
        assert_eq!((reply.status, reply.body.len(), reply.is_replay()), (200, MIB - 100, true));
    }
    stays_within(&gateway, before, 4 << 20);
}

#[tokio::test]
async fn replays_that_are_not_taken_stay_within_the_budget_and_end() {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    let setup = Setup::before(upstream.address).with("--body-timeout", "3s");
    // The budget includes a step for each of the 400 requests.
    let (gateway, before) = little(setup, "8MiB").await;
    for key in ["a", "b", "c"] {
        assert_eq!(gateway.post(key, "{}").await.status, 200);
    }
    let mut clients = Vec::new();
    let mut asked = JoinSet::new();
    for _ in 0..4 {
        let client = Client::with_window(&gateway, 0).await;
        for stream in 0..100 {
            let key = ["a", "b"][stream % 2];
            asked.spawn(client.asking(keyed(key, Pieces::whole("{}"))));
        }
        clients.push(client);
    }
    let mut replies = Vec::new();
    while let Some(reply) = asked.join_next().await {
        let reply = reply.unwrap().expect("an answer");
        // The replays share their bytes, so there is room for all of them.
        assert_eq!(reply.status(), 200);
        replies.push(reply);
    }
    println!("{} replays are not taken", replies.len());
    stays_within(&gateway, before, 8 << 20);
    // Each stream ends, although the connection answers pings, and returns its memory.
    for reply in replies {
        let ended = timeout(BOUND, http_body_util::BodyExt::collect(reply.into_body())).await;
        assert!(ended.expect("it ends").is_err(), "it is reset");
    }
    assert!(clients.iter().all(|client| !client.connection.is_finished()));
    for key in ["a", "b", "c"] {
        assert_eq!(gateway.post(key, "{}").await.body.len(), MIB - 100);
    }
    assert_eq!(upstream.count(), 4);
}

#[tokio::test]
async fn a_replay_without_room_is_refused_and_comes_later() {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    let setup = Setup::before(upstream.address).with("--max-memory", "2MiB").with("--body-timeout", "2s");
    let gateway = setup.start().await;
    for key in ["a", "b"] {
        assert_eq!(gateway.post(key, "{}").await.status, 200);
    }
    let client = Client::with_window(&gateway, 0).await;
    let pinned = client.ask(keyed("a", Pieces::whole("{}"))).await;
    assert_eq!(pinned.status(), 200);
    gateway.post("b", "{}").await.problem(503, "memory_exhausted");
    let _reset = timeout(BOUND, http_body_util::BodyExt::collect(pinned.into_body())).await.expect("it ends");
    assert_eq!(gateway.post("b", "{}").await.body.len(), MIB - 100);
}

#[tokio::test]
async fn answers_without_a_key_that_are_not_taken_hold_little() {
    let body = vec![b'x'; 4 * MIB];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    let setup = Setup::before(upstream.address);
    let gateway = setup.with("--max-memory", "4MiB").with("--body-timeout", "3s").start().await;
    let wire = gateway.ask("GET /warm", "", "").await;
    assert_eq!(wire.body.len(), 4 * MIB);
    let before = gateway.peak_bytes();
    let client = Client::with_window(&gateway, 0).await;
    let mut asked = JoinSet::new();
    for _ in 0..100 {
        let get = http::Request::get("http://shop.example/").body(Pieces::whole("")).unwrap();
        asked.spawn(client.asking(get));
    }
    while let Some(reply) = asked.join_next().await {
        let reply = reply.unwrap().expect("an answer");
        assert_eq!(reply.status(), 200);
        let ended = timeout(BOUND, http_body_util::BodyExt::collect(reply.into_body())).await;
        assert!(ended.expect("it ends").is_err(), "it is reset");
    }
    stays_within(&gateway, before, 4 << 20);
}
