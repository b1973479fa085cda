//! Impossible rows: the table refuses them from any writer.

use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;

const ANY: &[&str] = &[
    "state = 'held'",
    "state = ''",
    "note = 'why'",
    "note_at = now()",
    "attempt = 0",
    "id = substr(id, 2)",
    "id = id || '\\x00'",
    "token = substr(token, 2)",
    "token = token || '\\x00'",
    "fingerprint = substr(fingerprint, 2)",
    "fingerprint = fingerprint || '\\x00'",
    "status = 42",
];

const RUNNING: &[&str] = &[
    "status = 200",
    "headers = ''",
    "body = ''",
    "subtype = 'x'",
    "finished_at = now()",
    "status = 200, headers = '', finished_at = now()",
    "status = 200, headers = '', finished_at = now(), body = ''",
    "state = 'done'",
    "state = 'done', body = ''",
    "state = 'done', headers = '', finished_at = now()",
    "state = 'done', status = 200, finished_at = now()",
    "state = 'done', status = 200, headers = ''",
];

const DONE: &[&str] = &[
    "status = null",
    "headers = null",
    "finished_at = null",
    "status = 99",
    "status = 101",
    "status = 199",
    "status = 1000",
    "state = 'running'",
    "state = 'released'",
    "state = 'running', status = null, headers = null, finished_at = null",
];

const RELEASED: &[&str] =
    &["status = 200", "headers = ''", "body = ''", "subtype = 'x'", "finished_at = now()"];

/// The possible rows: one of each kind at its limits.
const POSSIBLE: &[(&str, &str)] = &[
    ("running", "note = 'why', note_at = now()"),
    ("running", "realm = repeat('x', 255), principal = '', operation = repeat('x', 255), resource = ''"),
    ("done", "body = null"),
    ("done", "subtype = repeat('x', 64), status = 200, headers = decode(repeat('00', 1048576), 'hex')"),
    ("done", "status = 999, body = decode(repeat('00', 16777216), 'hex')"),
    ("released", "fence = 0"),
];

#[tokio::test]
async fn a_row_that_cannot_be_is_refused() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let _running = granted(&store, &ask(&store, "running").await).await;
    let done = granted(&store, &ask(&store, "done").await).await;
    let outcome = Outcome::json("done").unwrap();
    store.complete(&done, &outcome).await.unwrap().applied().unwrap();
    let released = granted(&store, &ask(&store, "released").await).await;
    store.release(&released).await.unwrap().applied().unwrap();

    for (key, changes) in [("running", RUNNING), ("done", DONE), ("released", RELEASED)] {
        for change in ANY.iter().chain(changes) {
            let update = format!("update records set {change} where key = '{key}'");
            let refused = client.batch_execute(&update).await.expect_err(&update);
            assert_eq!(refused.code().map(|code| code.code()), Some("23514"), "{update}: {refused:?}");
        }
    }
    for (key, change) in POSSIBLE {
        let update = format!("update records set {change} where key = '{key}'");
        assert_eq!(client.execute(&update, &[]).await.unwrap(), 1, "{update}");
    }
    let count: i64 = client.query_one("select count(*) from records", &[]).await.unwrap().get(0);
    assert_eq!(count, 3);
}
