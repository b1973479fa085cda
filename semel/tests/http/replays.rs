//! Replays, which equal the first answer.

use std::time::Duration;

use axum::Router;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use semel::admin::{Inspect, ListQuery, Prune};
use semel::http::Settle;
use semel::store::Terms;
use semel::{MemoryStore, Policy, Store};

use crate::server::{Count, Reply, Server, sharing};

const ALL_BYTES: [u8; 256] = {
    let mut all = [0; 256];
    let mut at = 0;
    while at < 256 {
        all[at] = at as u8;
        at += 1;
    }
    all
};

fn sorted(reply: &Reply, leave_out: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut headers: Vec<_> = reply
        .headers
        .iter()
        .filter(|(name, _)| !leave_out.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    // Headers of one name keep their order.
    headers.sort_by(|(one, _), (other, _)| one.cmp(other));
    headers
}

#[tokio::test]
async fn headers_and_body_of_a_replay_are_byte_equal() {
    let handler = post(|| async {
        Response::builder()
            .status(201)
            .header("content-type", "application/octet-stream")
            .header("location", "/charges/7")
            .header("etag", "\"7\"")
            .header("link", "<b>; rel=next")
            .header("link", "<a>; rel=prev")
            .header("cache-control", "private")
            .header("x-charge", "caf\u{e9}")
            .header("set-cookie", "session=secret")
            .header("x-secret", "1")
            .body(axum::body::Body::from(ALL_BYTES.as_slice()))
            .unwrap()
    });
    let layer = sharing(MemoryStore::new());
    let layer = layer.with_recorded_header("x-charge".parse().unwrap());
    let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
    let first = server.post("/charges", "k", "{}").send().await;
    let again = server.post("/charges", "k", "{}").send().await;
    let third = server.post("/charges", "k", "{}").send().await;
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!((first.status.as_u16(), &*first.body), (201, ALL_BYTES.as_slice()));
    for replay in [again, third] {
        assert_eq!((replay.status, &replay.body), (first.status, &first.body));
        let of_first = sorted(&first, &["date", "set-cookie", "x-secret"]);
        assert_eq!(of_first, sorted(&replay, &["date", "idempotency-replayed"]));
        assert!(replay.is_replay());
        let links: Vec<_> = replay.headers.get_all("link").iter().collect();
        assert_eq!(links, ["<b>; rel=next", "<a>; rel=prev"]);
    }
}

#[tokio::test]
async fn a_replay_is_not_kept_by_a_cache_unless_the_handler_said_so() {
    let server = Server::start(
        Router::new().route("/charges", post(|| async { "charged" })).layer(sharing(MemoryStore::new())),
    )
    .await;
    assert_eq!(server.post("/charges", "k", "{}").send().await.header("cache-control"), None);
    assert_eq!(server.post("/charges", "k", "{}").send().await.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn answers_without_a_body_are_replayed() {
    let app = Router::new()
        .route("/none", post(|| async { StatusCode::NO_CONTENT }))
        .route("/empty", post(|| async { "" }))
        .layer(sharing(MemoryStore::new()));
    let server = Server::start(app).await;
    for (path, status) in [("/none", 204), ("/empty", 200)] {
        let first = server.post(path, path, "{}").send().await;
        let again = server.post(path, path, "{}").send().await;
        assert_eq!((first.status.as_u16(), again.status.as_u16()), (status, status));
        assert!(again.is_replay() && again.body.is_empty() && again.header("idempotency-replay").is_none());
        assert_eq!(first.header("content-length"), again.header("content-length"));
    }
}

/// A handler that answers with the status in its path and counts its runs.
async fn answering(policy: Policy) -> (Server, Count, MemoryStore) {
    let (count, store) = (Count::default(), MemoryStore::new());
    let counted = count.clone();
    let handler = post(move |axum::extract::Path(status): axum::extract::Path<u16>| async move {
        let run = counted.up();
        let mut response = Response::new(format!("run {run}"));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    });
    let layer = sharing(store.clone()).with_policy(policy);
    (Server::start(Router::new().route("/{status}", handler).layer(layer)).await, count, store)
}

#[tokio::test]
async fn released_keys_run_again_and_recorded_ones_do_not() {
    for (policy, recorded, released) in [
        (Policy::hold(), [200, 400, 404, 408, 500, 503].as_slice(), [401, 403, 425, 429].as_slice()),
        (Policy::retry(), &[200, 400, 404], &[401, 403, 408, 425, 429, 500, 503]),
    ] {
        let (server, count, _) = answering(policy).await;
        for (status, runs) in recorded.iter().map(|s| (s, 1)).chain(released.iter().map(|s| (s, 2))) {
            let before = count.get();
            let path = format!("/{status}");
            let first = server.post(&path, &path, "{}").send().await;
            let again = server.post(&path, &path, "{}").send().await;
            assert_eq!((first.status.as_u16(), again.status.as_u16()), (*status, *status));
            assert_eq!(count.get() - before, runs, "{status}");
            assert_eq!(again.is_replay(), runs == 1, "{status}");
        }
    }
}

#[tokio::test]
async fn a_handler_says_itself_what_becomes_of_its_key() {
    let count = Count::default();
    let (records, releases, abandons) = (count.clone(), count.clone(), count.clone());
    let app = Router::new()
        .route(
            "/record",
            post(move || async move {
                (StatusCode::TOO_MANY_REQUESTS, Settle::Complete, format!("{}", records.up()))
            }),
        )
        .route("/release", post(move || async move { (Settle::Release, format!("{}", releases.up())) }))
        .route(
            "/abandon",
            post(move || async move { (Settle::Abandon("no answer".into()), format!("{}", abandons.up())) }),
        );
    let store = MemoryStore::new();
    let server = Server::start(app.layer(sharing(store.clone()))).await;
    let twice = async |path: &str| {
        let first = server.post(path, path, "{}").send().await;
        (first, server.post(path, path, "{}").send().await)
    };
    let (first, again) = twice("/record").await;
    assert_eq!((first.text(), again.text(), again.is_replay(), again.status.as_u16()), ("1", "1", true, 429));
    let (first, again) = twice("/release").await;
    assert_eq!((first.text(), again.text(), again.is_replay()), ("2", "3", false));
    let (first, again) = twice("/abandon").await;
    assert_eq!(first.text(), "4");
    again.problem(409, "idempotency_outcome_unknown");
    let records = store.list(&ListQuery::default()).await.unwrap().records;
    let notes: Vec<_> =
        records.iter().filter_map(|record| record.note.as_ref()).map(|note| &*note.text).collect();
    assert_eq!(notes, ["abandoned: no answer"]);
}

#[tokio::test]
async fn the_application_can_decide_which_statuses_count() {
    let count = Count::default();
    let counted = count.clone();
    let handler = post(move || async move { (StatusCode::CONFLICT, format!("{}", counted.up())) });
    let layer = sharing(MemoryStore::new())
        .with_settle(|parts| (parts.status == StatusCode::CONFLICT).then_some(Settle::Release));
    let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
    assert_eq!(server.post("/charges", "k", "{}").send().await.text(), "1");
    assert_eq!(server.post("/charges", "k", "{}").send().await.text(), "2");
}

#[tokio::test]
async fn a_cookie_is_neither_recorded_nor_replayed() {
    let store = MemoryStore::new();
    let handler = post(|| async { ([("set-cookie", "session=secret")], "charged") });
    let server = Server::start(Router::new().route("/charges", handler).layer(sharing(store.clone()))).await;
    assert_eq!(server.post("/charges", "k", "{}").send().await.header("set-cookie"), Some("session=secret"));
    assert_eq!(server.post("/charges", "k", "{}").send().await.header("set-cookie"), None);
    let records = store.list(&ListQuery::default()).await.unwrap().records;
    let outcome = records[0].outcome().unwrap();
    assert!(outcome.headers().all(|(name, _)| name != "set-cookie"));
    let refused = sharing(store).with_recorded_header("set-cookie".parse().unwrap()).check().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the header set-cookie belongs to one caller or one connection and cannot be recorded"
    );
}

/// Regression: the record of a refused request stayed for a day, so that refused logins filled the
/// store.
#[tokio::test]
async fn a_refused_request_leaves_nothing_behind_soon() {
    let (server, _, store) = answering(Policy::hold()).await;
    for status in [401, 403, 429] {
        let path = format!("/{status}");
        server.post(&path, &path, "{}").send().await;
    }
    server.post("/200", "/200", "{}").send().await;
    store.memory_clock().advance(Terms::RELEASED_RETENTION - Duration::from_secs(10));
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    store.memory_clock().advance(Duration::from_secs(11));
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 3);
    assert!(server.post("/200", "/200", "{}").send().await.is_replay());
}
