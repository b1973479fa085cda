//! Records that cannot be read, which are errors, never absent, and never overwritten.

use std::fmt::Debug;
use std::time::Duration;

use rusqlite::Connection;
use semel::admin::{Inspect, ListQuery};
use semel::store::{Takeover, Token};
use semel::{Fence, Key, Outcome, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

/// Changes by another program, or by a newer semel.
const DAMAGES: [&str; 9] = [
    "fingerprint_version = 2",
    "fingerprint_version = 1000",
    "operation = ''",
    "operation = printf('%300s', 'x')",
    "resource = 'a' || char(10)",
    "state = 'waiting'",
    "token = x'00'",
    "attempt = -1",
    "owner = cast(x'ff' as text)",
];

fn damage(client: &Connection, change: &str) {
    let change = format!("update semel_records set {change} where key = 'key'");
    // Any program that can write to the file can also switch this off.
    client.execute_batch("pragma ignore_check_constraints = on").unwrap();
    assert_eq!(client.execute(&change, []).unwrap(), 1, "{change}");
}

/// Everything that is stored of a key, as text.
fn stored(client: &Connection) -> String {
    let question = "select hex(fingerprint_version || operation || resource || state || attempt || owner || version) \
                    || hex(token) from semel_records where key = 'key'";
    client.query_row(question, [], |row| row.get(0)).unwrap()
}

fn is_unreadable<T: Debug>(answer: Result<T, StoreError>, what: &str) {
    let error = answer.expect_err(what);
    assert!(!error.is_transient(), "{what}: {error}");
    assert!(error.to_string().starts_with("record not understood"), "{what}: {error}");
}

#[tokio::test]
async fn an_unreadable_record_is_an_error_to_all_and_stays_as_it_is() {
    for change in DAMAGES {
        let place = Place::new();
        let (store, client) = (place.store().await, place.client());
        let asked = ask(&store, "key").await;
        let lease = granted(&store, &asked).await;
        damage(&client, change);
        let before = stored(&client);
        let place_of = |verb: &str| format!("{verb} after {change}");

        is_unreadable(store.claim(&ask(&store, "key").await).await, &place_of("claim"));
        is_unreadable(store.claim(&asked).await, &place_of("repeated claim"));
        let taking = ask(&store, "key").await.with_takeover(Takeover::WhenOver);
        is_unreadable(store.claim(&taking).await, &place_of("takeover"));
        is_unreadable(store.complete(&lease, &Outcome::new(200).unwrap()).await, &place_of("complete"));
        is_unreadable(store.renew(&lease, Duration::from_secs(1)).await, &place_of("renew"));
        is_unreadable(store.release(&lease).await, &place_of("release"));
        is_unreadable(store.abandon(&lease, "lost").await, &place_of("abandon"));
        let void = store.void(&asked.key, asked.token, asked.not_after).await;
        is_unreadable(void, &place_of("void"));
        let void = store.void(&asked.key, Token::random(), asked.not_after).await;
        is_unreadable(void, &place_of("void of another"));
        is_unreadable(store.find(&asked.key).await, &place_of("find"));
        is_unreadable(store.list(&ListQuery::default()).await, &place_of("list"));
        let forget = store.forget(&asked.key, Fence::new(1), "no use").await;
        is_unreadable(forget, &place_of("forget"));
        // An unreadable record does not affect the others.
        granted(&store, &ask(&store, "another").await).await;

        assert_eq!(stored(&client), before, "{change} was written over");
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_read_is_not_replayed() {
    for change in ["headers = x'00'", "subtype = ''", "body = zeroblob(16777217)", "status = 42"] {
        let place = Place::new();
        let (store, client) = (place.store().await, place.client());
        let lease = granted(&store, &ask(&store, "key").await).await;
        store.complete(&lease, &Outcome::json("done").unwrap()).await.unwrap().applied().unwrap();
        damage(&client, change);
        is_unreadable(store.claim(&ask(&store, "key").await).await, change);
        is_unreadable(store.find(lease.key()).await, change);
    }
}

#[tokio::test]
async fn unreadable_records_do_not_affect_other_keys() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let bad = ask(&store, "key").await;
    granted(&store, &bad).await;
    damage(&client, DAMAGES[0]);
    let good = ask(&store, "good").await;
    granted(&store, &good).await;
    let keys = [good.key.clone(), bad.key.clone(), Key::new("tests", "absent").unwrap()];
    let mut found = store.find_many(&keys).await.unwrap().into_iter();
    assert_eq!(found.next().unwrap().unwrap().unwrap().token, good.token);
    is_unreadable(found.next().unwrap(), "find_many");
    assert_eq!(found.next().unwrap().unwrap(), None);
}
