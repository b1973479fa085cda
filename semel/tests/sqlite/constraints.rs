//! Impossible rows: the table refuses them from any writer.

use rusqlite::ffi;
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

const ANY: &[&str] = &[
    "state = 'held'",
    "state = ''",
    "note = 'why'",
    "note_at = 1",
    "version = 0",
    "attempt = 0",
    "fence = -1",
    "lease_until = -1",
    "heartbeat_at = -1",
    "created_at = -1",
    "updated_at = -1",
    "expires_at = -1",
    "id = substr(id, 2)",
    "id = zeroblob(33)",
    "token = substr(token, 2)",
    "token = zeroblob(17)",
    "fingerprint = substr(fingerprint, 2)",
    "fingerprint = zeroblob(33)",
    "status = 42",
];

/// Values of another type, which a table that is not strict would accept.
const OF_ANOTHER_TYPE: &[&str] = &[
    "version = 'one'",
    "fence = 1.5",
    "lease_until = 'soon'",
    "token = 'sixteen letters.'",
    "body = 'text'",
    "headers = 'text'",
    "key = x'00'",
    "owner = null",
];

const RUNNING: &[&str] = &[
    "status = 200",
    "headers = x''",
    "body = x''",
    "subtype = 'x'",
    "finished_at = 1",
    "status = 200, headers = x'', finished_at = 1",
    "status = 200, headers = x'', finished_at = 1, body = x''",
    "state = 'done'",
    "state = 'done', body = x''",
    "state = 'done', headers = x'', finished_at = 1",
    "state = 'done', status = 200, finished_at = 1",
    "state = 'done', status = 200, headers = x''",
];

const DONE: &[&str] = &[
    "status = null",
    "headers = null",
    "finished_at = null",
    "finished_at = -1",
    "status = 99",
    "status = 101",
    "status = 199",
    "status = 1000",
    "state = 'running'",
    "state = 'released'",
    "state = 'running', status = null, headers = null, finished_at = null",
];

const RELEASED: &[&str] =
    &["status = 200", "headers = x''", "body = x''", "subtype = 'x'", "finished_at = 1"];

/// The possible rows: one of each kind at its limits.
const POSSIBLE: &[(&str, &str)] = &[
    ("running", "note = 'why', note_at = 1"),
    (
        "running",
        "realm = printf('%255s', 'x'), principal = '', operation = printf('%255s', 'x'), resource = ''",
    ),
    ("done", "body = null"),
    ("done", "subtype = printf('%64s', 'x'), status = 200, headers = zeroblob(1048576)"),
    ("done", "status = 999, body = zeroblob(16777216)"),
    ("released", "fence = 0"),
];

#[tokio::test]
async fn a_row_that_cannot_be_is_refused() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let _running = granted(&store, &ask(&store, "running").await).await;
    let done = granted(&store, &ask(&store, "done").await).await;
    let outcome = Outcome::json("done").unwrap();
    store.complete(&done, &outcome).await.unwrap().applied().unwrap();
    let released = granted(&store, &ask(&store, "released").await).await;
    store.release(&released).await.unwrap().applied().unwrap();

    let refused = |key: &str, change: &str| {
        let update = format!("update semel_records set {change} where key = '{key}'");
        let refused = client.execute(&update, []).expect_err(&update);
        refused.sqlite_error().unwrap_or_else(|| panic!("{update}: {refused}")).extended_code
    };
    for (key, changes) in [("running", RUNNING), ("done", DONE), ("released", RELEASED)] {
        for change in ANY.iter().chain(changes) {
            assert_eq!(refused(key, change), ffi::SQLITE_CONSTRAINT_CHECK, "{key}: {change}");
        }
        for change in OF_ANOTHER_TYPE {
            let code = refused(key, change);
            assert!(
                [ffi::SQLITE_CONSTRAINT_DATATYPE, ffi::SQLITE_CONSTRAINT_NOTNULL].contains(&code),
                "{key}: {change}"
            );
        }
    }
    for (key, change) in POSSIBLE {
        let update = format!("update semel_records set {change} where key = '{key}'");
        assert_eq!(client.execute(&update, []).unwrap(), 1, "{update}");
    }
    let count: i64 = client.query_row("select count(*) from semel_records", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 3);
}
