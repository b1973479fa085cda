//! The view of the outcomes, for people and reports.

use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::{Place, end_lease};

#[tokio::test]
async fn json_bodies_are_shown_as_json_and_others_as_nothing() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let plain = || Outcome::new(200).unwrap();
    let of = |body: &'static [u8]| plain().with_body(body).unwrap();
    for (key, outcome, json, bytes) in [
        ("object", of(br#"{"b": 1, "a": [true, null]}"#), Some(r#"{"a": [true, null], "b": 1}"#), Some(27)),
        ("text", of("\"é\"".as_bytes()), Some("\"é\""), Some(4)),
        ("number", of(b"7"), Some("7"), Some(1)),
        ("null", of(b"null"), Some("null"), Some(4)),
        ("empty", of(b""), None, Some(0)),
        ("words", of(b"not json"), None, Some(8)),
        ("cut off", of(b"{\"a\":"), None, Some(5)),
        ("not text", of(b"\"\xff\""), None, Some(3)),
        ("escaped nul", of(br#""\u0000""#), None, Some(8)),
        ("nul", of(b"\"\0\""), None, Some(3)),
        ("half a pair", of(br#""\ud800""#), None, Some(8)),
        ("omitted", plain().without_body(), None, None),
    ] {
        let lease = granted(&store, &ask(&store, key).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
        let question = "select phase, body::text, body_bytes, status from outcomes where key = $1";
        let row = client.query_one(question, &[&key]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "done", "{key}");
        assert_eq!(row.get::<_, Option<&str>>(1), json, "{key}");
        assert_eq!(row.get::<_, Option<i32>>(2), bytes, "{key}");
        assert_eq!(row.get::<_, i16>(3), 200, "{key}");
        // However Postgres shows it, a replay is byte for byte.
        assert_eq!(store.find(lease.key()).await.unwrap().unwrap().outcome(), Some(&outcome), "{key}");
    }
}

#[tokio::test]
async fn a_key_is_shown_in_the_phase_it_is_in() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let _running = granted(&store, &ask(&store, "running").await).await;
    let held = granted(&store, &ask(&store, "held").await).await;
    end_lease(&client, held.key()).await;
    let released = granted(&store, &ask(&store, "released").await).await;
    store.release(&released).await.unwrap().applied().unwrap();
    let abandoned = granted(&store, &ask(&store, "abandoned").await).await;
    store.abandon(&abandoned, "no idea").await.unwrap().applied().unwrap();
    let rows = client.query("select key, phase, note from outcomes order by key", &[]).await.unwrap();
    let shown: Vec<(&str, &str, Option<&str>)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(
        shown,
        [
            ("abandoned", "held", Some("abandoned: no idea")),
            ("held", "held", None),
            ("released", "released", None),
            ("running", "running", None),
        ]
    );
}
