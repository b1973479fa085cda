//! Outcomes, which are returned byte for byte.

use bytes::Bytes;
use semel::store::Claim;
use semel::{Outcome, RedisStore, Store};
use testkit::claims::{ask, granted};
use testkit::stores::redis::{Place, Server};
use testkit::until::LONG;

fn of(body: impl Into<Bytes>) -> Outcome {
    Outcome::new(200).unwrap().with_body(body).unwrap()
}

/// A store that gives a slow machine the time that so many bytes need; on a server of its own,
/// because other tests would wait for them, too.
async fn patient(place: &Place) -> RedisStore {
    place.options().with_timeout(LONG).connect().await.unwrap()
}

/// Bytes that no encoding of text produces, and that compress badly.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(step).collect()
}

#[tokio::test]
async fn outcomes_of_every_kind_are_replayed_byte_for_byte() {
    let server = Server::start("");
    let place = server.place();
    let (store, other) = (patient(&place).await, patient(&place).await);
    let plain = || Outcome::new(200).unwrap();
    let headers = |count: usize| {
        let headers: Vec<(String, Bytes)> = (0..count)
            .map(|n| (format!("x-{}", n % 97), Bytes::from(vec![(n % 256) as u8; n % 11])))
            .collect();
        plain().with_headers(headers.iter().map(|(name, value)| (&**name, value.clone()))).unwrap()
    };
    for (name, outcome) in [
        ("empty", of("")),
        ("omitted", plain().without_body()),
        ("nul", of(&b"\0"[..])),
        ("nuls and lines", of(&b"\0\r\n\0$5\r\n*1\r\n"[..])),
        ("not text", of(&b"\xff\xfe\x80"[..])),
        ("every byte", of((0..=255).collect::<Vec<u8>>())),
        ("lowest status", Outcome::new(200).unwrap()),
        ("highest status", Outcome::new(999).unwrap()),
        ("subtype", plain().with_subtype("already_exists").unwrap().without_body()),
        ("long subtype", plain().with_subtype(&"x".repeat(64)).unwrap()),
        ("many headers", headers(4_000)),
        ("longest header", plain().with_headers([("a", Bytes::from(noise(65_535)))]).unwrap()),
        ("1 MiB", of(noise(1 << 20))),
        ("16 MiB", of(noise(Outcome::MAX_BODY_BYTES))),
    ] {
        let lease = granted(&store, &ask(&store, name).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
        let claim = other.claim(&ask(&other, name).await).await.unwrap();
        assert!(matches!(&claim, Claim::Done(done) if done.outcome == outcome), "{name}: {claim:?}");
        assert_eq!(other.find(lease.key()).await.unwrap().unwrap().outcome(), Some(&outcome), "{name}");
        // A repeat of the same complete is acknowledged, a different one is not.
        assert!(store.complete(&lease, &outcome).await.unwrap().stands(), "{name}");
        assert!(!store.complete(&lease, &of("another")).await.unwrap().stands(), "{name}");
    }
}

#[tokio::test]
async fn several_of_the_largest_go_out_together() {
    let server = Server::start("");
    let store = patient(&server.place()).await;
    let outcome = of(noise(Outcome::MAX_BODY_BYTES));
    let all = (0..2).map(async |number| {
        let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
        assert_eq!(store.find(lease.key()).await.unwrap().unwrap().outcome(), Some(&outcome));
    });
    futures_util::future::join_all(all).await;
}

#[tokio::test]
async fn notes_and_owners_are_kept_as_they_are() {
    let place = Place::shared();
    let store = place.store().await;
    let asked = ask(&store, "key").await.with_owner(semel::store::Owner::new(&"é".repeat(200)));
    let lease = granted(&store, &asked).await;
    store.abandon(&lease, &"ü".repeat(400)).await.unwrap().applied().unwrap();
    let record = place.store().await.find(lease.key()).await.unwrap().unwrap();
    assert_eq!(record.owner, asked.owner);
    let note = record.note.unwrap();
    assert!(
        note.text.starts_with("abandoned: üü") && note.text.len() <= semel::store::Note::MAX_BYTES,
        "{note:?}"
    );
    assert_eq!(note.at, record.updated_at);
}
