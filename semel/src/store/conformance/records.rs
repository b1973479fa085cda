//! Records: their content and its limits.

use bytes::Bytes;

use super::{Subject, again, key, outcome};
use crate::protocol::answer::{Ack, Claim};
use crate::words::outcome::Outcome;
use crate::words::record::{Phase, Record, RecordState};

async fn found(on: &Subject, key: &crate::words::key::Key) -> Record {
    on.peer.find(key).await.expect("the store answers a find").expect("there is a record")
}

/// Claims with this outcome and reads the outcome back in both ways.
async fn kept(on: &Subject, outcome: Outcome) {
    let (ask, lease) = on.running().await;
    assert_eq!(on.store.complete(&lease, &outcome).await.expect("the store answers"), Ack::Applied);
    let claim = on.peer.claim(&again(&ask)).await.expect("the store answers a claim");
    assert!(matches!(&claim, Claim::Done(replayed) if replayed.outcome == outcome), "{claim:?}");
    assert_eq!(found(on, &ask.key).await.outcome(), Some(&outcome));
}

/// A record shows its key, intent, owner, token, fence, terms, state and times.
pub async fn a_record_tells_what_was_asked(on: &Subject) {
    let (ask, lease) = on.running().await;
    let record = found(on, &ask.key).await;
    assert_eq!((&record.key, &record.intent, &record.owner), (&ask.key, &ask.intent, &ask.owner));
    assert_eq!((record.token, record.fence, record.attempt), (ask.token, lease.fence(), 1));
    assert_eq!((record.retention, record.after_crash), (ask.terms.retention(), ask.terms.after_crash()));
    assert_eq!(lease.retention(), Some(ask.terms.retention()));
    assert_eq!(
        (&record.state, record.lease_until, &record.note),
        (&RecordState::Running, lease.deadline(), &None)
    );
    let now = on.store.now().await.expect("the store tells its time");
    assert!(record.created_at <= now && record.created_at < record.lease_until);
    assert_eq!((record.heartbeat_at, record.updated_at), (record.created_at, record.created_at));
    assert_eq!(record.phase(record.created_at), Phase::Running);
    assert_eq!(record.phase(record.lease_until), Phase::Held);

    on.pass(on.lease / 4).await;
    assert_eq!(on.store.renew(&lease, on.lease).await.expect("the store answers"), Ack::Applied);
    let renewed = found(on, &ask.key).await;
    assert!(renewed.heartbeat_at > record.heartbeat_at && renewed.lease_until > record.lease_until);
    assert!(renewed.version > record.version && renewed.updated_at > record.updated_at);
    assert_eq!((renewed.created_at, renewed.retention), (record.created_at, record.retention));

    on.pass(on.lease / 4).await;
    assert_eq!(on.store.complete(&lease, &outcome(1)).await.expect("the store answers"), Ack::Applied);
    let done = found(on, &ask.key).await;
    let RecordState::Done { finished_at, .. } = done.state else { panic!("{done:?}") };
    assert!(finished_at > renewed.heartbeat_at && done.version > renewed.version);
    assert_eq!((done.updated_at, done.heartbeat_at), (finished_at, renewed.heartbeat_at));
    assert_eq!((done.created_at, done.token, done.fence), (record.created_at, ask.token, lease.fence()));
}

/// An outcome comes back unchanged: status, subtype, headers in any number and order, and every
/// byte.
pub async fn an_outcome_is_kept_byte_for_byte(on: &Subject) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let headers = [
        ("content-type", Bytes::from_static(b"application/octet-stream")),
        ("link", Bytes::from_static(b"<b>; rel=next")),
        ("link", Bytes::from_static(b"<a>; rel=prev")),
        ("x-latin", Bytes::from_static(b"caf\xe9")),
        ("x-empty", Bytes::new()),
    ];
    let made = || -> Result<Outcome, crate::error::OutcomeError> {
        Outcome::new(201)?.with_subtype("already_exists")?.with_headers(headers)?.with_body(every_byte)
    };
    kept(on, made().expect("a valid outcome")).await;
    kept(on, Outcome::new(204).expect("a valid status")).await;
    kept(on, Outcome::new(999).expect("a valid status").with_body("{\"a\":\"\\u0000\"}").expect("small"))
        .await;
}

/// An outcome that was recorded without its body differs from one with an empty body.
pub async fn an_outcome_without_body_stays_without(on: &Subject) {
    kept(on, outcome(1).without_body()).await;
}

/// A body and headers of the largest size that every store must accept come back whole.
pub async fn a_large_outcome_is_kept(on: &Subject) {
    let noise = |len: usize| -> Bytes { (0..len).map(|n| (n * n / 7) as u8).collect() };
    let value = Bytes::from(vec![b'v'; Outcome::MAX_HEADER_BYTES - "x-large".len()]);
    let large = Outcome::new(200).and_then(|o| o.with_headers([("x-large", value)]));
    let large = large.and_then(|o| o.with_body(noise(Outcome::MAX_BODY_BYTES)));
    kept(on, large.expect("as large as it may be")).await;
}

/// One question for several keys is answered in their order, with absent keys as absent.
pub async fn find_many_answers_in_order(on: &Subject) {
    let (one, _) = on.running().await;
    let (two, _) = on.done().await;
    let keys = [two.key.clone(), key(), one.key.clone(), two.key.clone()];
    let found = on.store.find_many(&keys).await.expect("the store answers");
    let found = found.into_iter().map(|found| found.expect("every record is understood"));
    let keys: Vec<_> = found.map(|record| record.map(|record| record.key)).collect();
    assert_eq!(keys, [Some(two.key.clone()), None, Some(one.key), Some(two.key)]);
    assert!(on.store.find_many(&[]).await.expect("the store answers").is_empty());
}
