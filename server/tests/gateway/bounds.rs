//! Memory: the gateway stays within its budget, whatever its clients do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::servers::RedisServers;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Gateway, Setup};
use crate::stop::Stop;
use crate::upstream::{Upstream, answer};
use crate::wire::{Wire, request};

const MIB: usize = 1 << 20;

/// A gateway with little memory that has served a request, and its memory in use by then.
async fn little(setup: Setup, memory: &str) -> (Gateway, u64) {
    let gateway = setup.with("--max-memory", memory).start().await;
    assert_eq!(gateway.post("warm", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    (gateway, before)
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
    gateway.stays_within(before, 16 << 20);
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
    gateway.stays_within(before, 16 << 20);
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    assert_eq!(upstream.count(), 2);
}

/// A client that declares much, and sends a byte now and then until there is an answer. Then it
/// comes again.
async fn drip(address: SocketAddr, name: usize, ended: Arc<AtomicUsize>) {
    for number in 0.. {
        let Some(mut wire) = Wire::try_to(address).await else { continue };
        let _closed = wire.try_send(declared(&format!("{name}-{number}"), MIB)).await;
        let reply = loop {
            let _closed = wire.try_send("x").await;
            if let Ok(reply) = timeout(Duration::from_millis(500), wire.try_reply()).await {
                break reply;
            }
        };
        assert!(reply.is_none_or(|reply| reply.status == 408));
        ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The median of the times that requests with new keys take.
async fn median(gateway: &Gateway, name: &str) -> Duration {
    let mut times = Vec::new();
    for number in 0..15 {
        let began = Instant::now();
        let reply = gateway.post(&format!("{name}-{number}"), "{}").await;
        assert_eq!((reply.status, reply.is_replay()), (200, false));
        times.push(began.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test]
async fn clients_that_declare_much_and_drip_do_not_block_other_clients() {
    let upstream = Upstream::counting().await;
    let (gateway, before) = little(Setup::before(upstream.address), "16MiB").await;
    let alone = median(&gateway, "alone").await;
    let ended = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for name in 0..300 {
        clients.spawn(drip(gateway.address, name, Arc::clone(&ended)));
    }
    let began = Instant::now();
    while gateway.metric(&["semel_gateway_connections "]).await < 300.0 {
        assert!(began.elapsed() < BOUND, "not all of them are there");
        sleep(Duration::from_millis(20)).await;
    }
    let beside = median(&gateway, "beside").await;
    println!("{alone:?} alone, {beside:?} beside 300 clients that drip");
    // On a machine that is busy, the request takes long without them, too.
    assert!(beside < Duration::from_secs(2) + 10 * alone, "{alone:?} alone, {beside:?} beside them");
    // Each of the other requests ends, long before the timeout of a body.
    let began = Instant::now();
    while ended.load(Ordering::Relaxed) < 300 {
        assert!(began.elapsed() < BOUND, "they go on dripping");
        sleep(Duration::from_millis(20)).await;
    }
    clients.shutdown().await;
    gateway.stays_within(before, 16 << 20);
    assert_eq!(upstream.count(), 1 + 15 + 15);
}

/// An upstream that accepts connections and reads nothing, and one that counts, by their paths.
async fn beside_a_still_one(counting: &Upstream) -> (TcpListener, Setup) {
    let still = TcpSocket::new_v4().unwrap();
    still.set_recv_buffer_size(4_096).unwrap();
    still.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let still = still.listen(64).unwrap();
    let file = format!(
        "upstream = 'http://{}'\n[[route]]\npath = '/still'\nupstream = 'http://{}'\n[[route]]\npath = '/charges'\n",
        counting.address,
        still.local_addr().unwrap()
    );
    (still, Setup::new().with_file(&file))
}

#[tokio::test]
async fn without_room_nothing_is_claimed_and_repeats_do_not_wait() {
    let (upstream, stop) = Upstream::stopping().await;
    let (still, setup) = beside_a_still_one(&upstream).await;
    let setup = setup.with("--max-memory", "128MiB").with("--max-body", "32MiB").with("--wait", "5m");
    let gateway = setup.with("--upstream-timeout", "5m").start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    let repeat = gateway.posting("k", "{}");
    // Bodies that the upstream does not read fill the 64 MiB for requests, except for 10. Each of
    // them has twice its room, which it needs while it is joined.
    let mut full = JoinSet::new();
    let mut lines = Vec::new();
    for mebibytes in [30, 16, 8] {
        let post = request(
            "POST /still",
            &format!("Idempotency-Key: {mebibytes}\r\n"),
            &vec![b'x'; mebibytes * MIB],
        );
        let mut wire = gateway.wire().await;
        full.spawn(async move {
            wire.send(post).await;
            wire.try_reply().await
        });
        lines.push(timeout(BOUND, still.accept()).await.expect("it arrives").unwrap());
    }
    repeat.await.unwrap().unwrap().problem(409, "idempotency_key_pending");
    let refused = gateway.post("new", &"x".repeat(6 * MIB)).await;
    refused.problem(503, "memory_exhausted");
    assert_eq!(refused.header("retry-after"), Some("1"));
    stop.go();
    assert_eq!(first.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), false));
    // The connections break, and there is room again.
    drop(lines);
    while let Some(reply) = full.join_next().await {
        reply.unwrap().expect("an answer").problem(502, "upstream_lost");
    }
    stop.go();
    // The same key with another body was never claimed.
    assert_eq!(gateway.post("new", &"y".repeat(6 * MIB)).await.told(), (200, "run 2".to_owned(), false));
}

#[tokio::test]
async fn bodies_that_the_upstream_has_taken_leave_room_for_others() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--upstream-timeout", "5m");
    let (gateway, before) = {
        stop.go();
        let warm = little(setup, "4MiB").await;
        stop.arrival().await;
        warm
    };
    // Together they are larger than the share of requests, 2 MiB, and the memory beside the budget.
    // Some go over connections that were kept, for which there is a spare of each request.
    let body = "x".repeat(900_000);
    for round in 0..2 {
        let mut asked = Vec::new();
        for number in 0..50 {
            let began = Instant::now();
            let key = format!("{round}-{number}");
            // The gateway returns the room just after the upstream has read the last byte.
            loop {
                let mut reply = gateway.posting(&key, &body);
                tokio::select! {
                    () = stop.arrival() => {
                        asked.push(reply);
                        break;
                    }
                    refused = &mut reply => drop(refused.unwrap().unwrap().problem(503, "memory_exhausted")),
                }
                assert!(began.elapsed() < BOUND, "{key}: the bodies before it keep their room");
            }
        }
        for reply in asked {
            stop.go();
            assert_eq!(reply.await.unwrap().expect("an answer").status, 200);
        }
    }
    gateway.stays_within(before, 4 << 20);
    assert_eq!(upstream.count(), 1 + 100);
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
    gateway.stays_within(before, 4 << 20);
}

/// Asks for each of these keys over HTTP/2, with clients that take nothing.
async fn untaken(
    gateway: &Gateway,
    keys: impl Iterator<Item = String>,
) -> (Vec<Client>, JoinSet<Option<u16>>) {
    let (mut clients, mut asked) = (Vec::new(), JoinSet::new());
    for (number, key) in keys.enumerate() {
        if number % 100 == 0 {
            clients.push(Client::with_window(gateway, 0).await);
        }
        let reply = clients[number / 100].asking(keyed(&key, Pieces::whole("{}")));
        asked.spawn(async move {
            let reply = reply.await?;
            let status = reply.status().as_u16();
            // The stream stays open until the task is aborted.
            if status == 200 {
                let _reset = http_body_util::BodyExt::collect(reply.into_body()).await;
            }
            Some(status)
        });
    }
    (clients, asked)
}

#[tokio::test]
async fn answers_that_wait_for_room_hold_little() {
    let stop = Stop::default();
    let stops = stop.clone();
    let upstream = Upstream::start(move |seen| {
        let stop = stops.clone();
        async move {
            if seen.number > 1 {
                stop.here().await;
            }
            answer("200 OK", "", vec![b'x'; MIB - 100])
        }
    })
    .await;
    let setup = Setup::before(upstream.address).with("--body-timeout", "5m").with("--upstream-timeout", "5m");
    let (gateway, before) = little(setup, "8MiB").await;
    let (clients, asked) = untaken(&gateway, (0..400).map(|key| key.to_string())).await;
    for _ in 0..400 {
        stop.arrival().await;
    }
    (0..400).for_each(|_| stop.go());
    // The pause lets the answers arrive. If it were too short, the test would only cover less.
    sleep(Duration::from_secs(5)).await;
    gateway.stays_within(before, 8 << 20);
    drop((clients, asked));
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
    gateway.stays_within(before, 8 << 20);
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

/// Records 100 large answers, and asks for all of them at once, several times. Returns the gateway
/// and its memory in use before.
async fn large_replays_of_many_keys(change: impl FnOnce(Setup) -> Setup) -> (Gateway, u64) {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    let (gateway, before) = little(change(Setup::before(upstream.address)), "8MiB").await;
    for key in 0..100 {
        assert_eq!(gateway.post(&format!("key {key}"), "{}").await.status, 200);
    }
    for _ in 0..4 {
        let (mut clients, mut asked) = (Vec::new(), JoinSet::new());
        for _ in 0..4 {
            clients.push(Client::new(&gateway).await);
        }
        for number in 0..400 {
            let key = format!("key {}", number % 100);
            let reply = clients[number % 4].asking(keyed(&key, Pieces::whole("{}")));
            asked.spawn(async move {
                let reply = reply.await.expect("an answer");
                let status = reply.status().as_u16();
                let body = http_body_util::BodyExt::collect(reply.into_body()).await.expect("it is whole");
                (status, body.to_bytes().len())
            });
        }
        let (mut replayed, mut refused) = (0, 0);
        while let Some(told) = asked.join_next().await {
            match told.unwrap() {
                (200, length) => {
                    assert_eq!(length, MIB - 100);
                    replayed += 1;
                }
                (503, _) => refused += 1,
                (other, _) => panic!("{other}"),
            }
        }
        println!("{replayed} replayed, {refused} refused");
        assert!(replayed > 0);
    }
    assert_eq!(upstream.count(), 1 + 100);
    (gateway, before)
}

/// Regression: answers that a store had loaded counted only when the tasks of their requests ran.
#[tokio::test]
async fn large_replays_of_many_keys_from_postgres_stay_within_the_budget() {
    let store = testkit::stores::postgres::database().await;
    let over_postgres = |setup: Setup| setup.with("--store", &store).with("--migrate", "true");
    let (gateway, before) = large_replays_of_many_keys(over_postgres).await;
    gateway.stays_within(before, 8 << 20);
}

#[tokio::test]
async fn large_replays_of_many_keys_from_sqlite_stay_within_the_budget() {
    let (gateway, before) = large_replays_of_many_keys(|setup| setup).await;
    gateway.stays_within(before, 8 << 20);
}

#[tokio::test]
async fn large_replays_of_many_keys_from_redis_stay_within_the_budget() {
    let mut servers = RedisServers::new().expect("the binaries of Redis");
    let store = servers.start("redis", "--appendonly no").expect("a server");
    let (gateway, before) = large_replays_of_many_keys(|setup| setup.with("--store", &store)).await;
    gateway.stays_within(before, 8 << 20);
}

/// A cache is a second store, and each answer that it does not have is sent to it.
#[tokio::test]
async fn large_replays_of_many_keys_past_a_cache_need_the_memory_of_a_second_store() {
    let mut servers = RedisServers::new().expect("the binaries of Redis");
    let cache = servers.start("redis", "--maxmemory 16mb --maxmemory-policy allkeys-lru").expect("a server");
    let store = testkit::stores::postgres::database().await;
    let behind_a_cache =
        |setup: Setup| setup.with("--store", &store).with("--migrate", "true").with("--cache", &cache);
    let (gateway, before) = large_replays_of_many_keys(behind_a_cache).await;
    gateway.stays_within(before, (8 << 20) + (16 << 20));
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
async fn replays_that_are_not_taken_leave_room_for_the_answers_of_attempts() {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    // An answer that waits for room for longer than the upstream may take is recorded without its
    // body.
    let setup =
        Setup::before(upstream.address).with("--body-timeout", "5m").with("--upstream-timeout", "10s");
    let (gateway, before) = little(setup, "8MiB").await;
    let keys = ["a", "b", "c", "d"];
    for key in keys {
        assert_eq!(gateway.post(key, "{}").await.status, 200);
    }
    // Of the 4 MiB for answers, replays get half.
    let client = Client::with_window(&gateway, 0).await;
    let mut untaken = Vec::new();
    for (key, status) in keys.into_iter().zip([200, 200, 503, 503]) {
        let reply = client.ask(keyed(key, Pieces::whole("{}"))).await;
        assert_eq!(reply.status(), status, "{key}");
        untaken.push(reply);
    }
    // An answer that is not taken does not leave the next one waiting.
    untaken.push(client.ask(keyed("e", Pieces::whole("{}"))).await);
    assert_eq!(gateway.post("f", "{}").await.told().0, 200);
    drop(untaken);
    let began = Instant::now();
    loop {
        let reply = gateway.post("f", "{}").await;
        if reply.status == 200 {
            assert_eq!((reply.body.len(), reply.is_replay()), (MIB - 100, true), "it was recorded whole");
            break;
        }
        reply.problem(503, "memory_exhausted");
        assert!(began.elapsed() < BOUND, "replays stay refused");
    }
    gateway.stays_within(before, 8 << 20);
    assert_eq!(upstream.count(), 7);
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
    gateway.stays_within(before, 4 << 20);
}
