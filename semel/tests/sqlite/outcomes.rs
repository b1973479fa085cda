//! Outcomes, as replays and in the view for people.

use bytes::Bytes;
use semel::store::Claim;
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::{Place, end_lease};
use testkit::until::until;

#[tokio::test]
async fn json_bodies_are_shown_as_json_and_others_as_nothing() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let plain = || Outcome::new(200).unwrap();
    let of = |body: &'static [u8]| plain().with_body(body).unwrap();
    for (key, outcome, json, bytes) in [
        ("object", of(br#"{"b": 1, "a": [true, null]}"#), Some(r#"{"b":1,"a":[true,null]}"#), Some(27)),
        ("text", of("\"é\"".as_bytes()), Some("\"é\""), Some(4)),
        ("number", of(b"7"), Some("7"), Some(1)),
        ("null", of(b"null"), Some("null"), Some(4)),
        ("empty", of(b""), None, Some(0)),
        ("words", of(b"not json"), None, Some(8)),
        ("cut off", of(b"{\"a\":"), None, Some(5)),
        ("nul", of(b"\"\0\""), None, Some(3)),
        ("nul behind", of(b"7\0 and more"), None, Some(11)),
        ("json 5", of(b"{a: 1}"), None, Some(6)),
        ("omitted", plain().without_body(), None, None),
    ] {
        let lease = granted(&store, &ask(&store, key).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
        let question = "select phase, body, body_bytes, status from semel_outcomes where key = ?1";
        let shown: (String, Option<String>, Option<i64>, i64) = client
            .query_row(question, [key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .unwrap();
        assert_eq!(shown, ("done".to_owned(), json.map(str::to_owned), bytes, 200), "{key}");
    }
}

#[tokio::test]
async fn a_replay_is_byte_for_byte() {
    let place = Place::new();
    let (store, peer) = (place.store().await, place.store().await);
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let headers = [
        ("link", Bytes::from_static(b"<b>")),
        ("link", Bytes::from_static(b"<a>")),
        ("x-empty", Bytes::new()),
        ("x-bytes", Bytes::from_static(b"\0\xff")),
    ];
    let plain = || Outcome::new(201).unwrap();
    for (name, outcome) in [
        ("bytes", plain().with_body(every_byte).unwrap()),
        ("nul", plain().with_body(b"\0".as_slice()).unwrap()),
        ("not text", plain().with_body(b"\"\xff\"".as_slice()).unwrap()),
        ("empty", plain()),
        ("omitted", plain().without_body()),
        ("headers", plain().with_headers(headers).unwrap().with_subtype("already_exists").unwrap()),
        ("largest", plain().with_body(vec![7; Outcome::MAX_BODY_BYTES]).unwrap()),
    ] {
        let lease = granted(&store, &ask(&store, name).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
        let replayed = peer.claim(&ask(&peer, name).await).await.unwrap();
        assert!(matches!(&replayed, Claim::Done(done) if done.outcome == outcome), "{name}: {replayed:?}");
    }
}

#[tokio::test]
async fn a_key_is_shown_in_the_phase_it_is_in() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let _running = granted(&store, &ask(&store, "running").await).await;
    let held = granted(&store, &ask(&store, "held").await).await;
    end_lease(&client, held.key());
    let released = granted(&store, &ask(&store, "released").await).await;
    store.release(&released).await.unwrap().applied().unwrap();
    let abandoned = granted(&store, &ask(&store, "abandoned").await).await;
    store.abandon(&abandoned, "no idea").await.unwrap().applied().unwrap();
    let question = "select key, phase, note from semel_outcomes order by key";
    let mut question = client.prepare(question).unwrap();
    let expected = [
        ("abandoned", "held", Some("abandoned: no idea")),
        ("held", "held", None),
        ("released", "released", None),
        ("running", "running", None),
    ];
    let expected = expected.map(|(key, phase, note)| (key.into(), phase.into(), note.map(Into::into)));
    // SQLite tells the time in milliseconds, so a key that was abandoned just now may still seem to
    // run.
    until("all are in their phase", async || {
        let shown = question.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let shown: Vec<(String, String, Option<String>)> = shown.map(Result::unwrap).collect();
        shown == expected
    })
    .await;
}

#[tokio::test]
async fn moments_are_shown_as_the_store_tells_them() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let lease = granted(&store, &ask(&store, "key").await).await;
    let record = store.find(lease.key()).await.unwrap().unwrap();
    let shown: String =
        client.query_row("select created_at from semel_outcomes", [], |row| row.get(0)).unwrap();
    // The view has milliseconds, rounded, and the store has microseconds: the minute is the same,
    // or the next.
    let told = record.created_at.to_string();
    let next = record.created_at.after(std::time::Duration::from_millis(1)).to_string();
    assert!(shown[..16] == told[..16] || shown[..16] == next[..16], "{shown} {told}");
    assert!(shown.len() == "2026-11-15T09:30:00.000Z".len() && shown.ends_with('Z'), "{shown}");
}
