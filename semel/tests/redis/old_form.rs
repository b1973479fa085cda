//! Records in the form of an older version, which has no policy and contains the end of the
//! retention instead of its length. The tests write them by hand, as that version did.

use std::time::Duration;

use redis::cmd;
use semel::admin::{Inspect, ListQuery, OperatorAck};
use semel::store::{Ack, Ask, Claim, Owner, Phase, Record, Takeover, Token};
use semel::{AfterCrash, Intent, Lease, Outcome, RedisStore, Store};
use testkit::claims::{ask, granted, lease, outcome, retried};
use testkit::stores::redis::{Place, say};

const SECOND: u64 = 1_000_000;
/// The retention of the older version, counted from the claim, and the length of its leases.
const RETENTION: u64 = 100 * SECOND;
const LEASE: u64 = 10 * SECOND;

/// The contents of a record, beside its claim of a minute ago.
struct Old {
    state: u8,
    lease_until: u64,
    updated_at: u64,
    outcome: Vec<u8>,
}

/// The bytes of format 1: the head in the order of its fields with the high byte first, the intent
/// and the owner, and the outcome.
fn written(ask: &Ask, token: Token, claimed_at: u64, old: &Old) -> Vec<u8> {
    let mut bytes = vec![1, old.state];
    bytes.extend(token.as_bytes());
    let (fence, version, attempt) = (claimed_at, 1, 1);
    let moments = [old.lease_until, claimed_at, claimed_at, old.updated_at, claimed_at + RETENTION];
    for number in [fence, version, attempt].into_iter().chain(moments) {
        bytes.extend(u64::to_be_bytes(number));
    }
    let mut asked = vec![ask.intent.fingerprint().version()];
    asked.extend(ask.intent.fingerprint().as_bytes());
    for text in [ask.intent.operation(), ask.intent.resource()] {
        asked.extend(u16::to_be_bytes(u16::try_from(text.len()).unwrap()));
        asked.extend(text.bytes());
    }
    asked.extend(b"an older worker");
    bytes.extend(u16::to_be_bytes(u16::try_from(asked.len()).unwrap()));
    bytes.extend(u16::to_be_bytes(0));
    [bytes, asked, old.outcome.clone()].concat()
}

/// Leaves a record that an older version has claimed a minute ago. Returns a claim of its key, and
/// that moment.
async fn left(place: &Place, store: &RedisStore, old: impl FnOnce(u64) -> Old) -> (Ask, u64) {
    let ask = ask(store, "key").await;
    let claimed_at = store.now().await.unwrap().as_micros() - 60 * SECOND;
    let stored = written(&ask, Token::random(), claimed_at, &old(claimed_at));
    let mut set = cmd("SET");
    set.arg(place.name("key")).arg(stored).arg("PX").arg(100_000);
    set.exec_async(&mut place.connection().await).await.unwrap();
    (ask, claimed_at)
}

/// A store, and a key with a record that an older version has claimed a minute ago.
async fn upgraded(place: &Place, old: impl FnOnce(u64) -> Old) -> (RedisStore, Ask, Record) {
    let store = place.store().await;
    let (ask, claimed_at) = left(place, &store, old).await;
    let record = store.find(&ask.key).await.unwrap().expect("it is there");
    assert_eq!(
        (record.intent.clone(), record.owner.clone()),
        (ask.intent.clone(), Owner::new("an older worker"))
    );
    assert_eq!((record.created_at.as_micros(), record.attempt), (claimed_at, 1));
    (store, ask, record)
}

fn running(claimed_at: u64) -> Old {
    Old { state: b'R', lease_until: claimed_at + LEASE, updated_at: claimed_at, outcome: Vec::new() }
}

/// The handler of the lost attempt may have had its effect, whatever the policy of the older
/// process was.
#[tokio::test]
async fn a_lost_attempt_in_the_old_form_is_held_and_not_taken_over() {
    let place = Place::shared();
    let (store, asked, record) = upgraded(&place, running).await;
    assert_eq!((record.after_crash, record.expires_at()), (AfterCrash::Hold, None));
    assert_eq!(record.phase(store.now().await.unwrap()), Phase::Held);
    let stats = Inspect::stats(&store).await.unwrap();
    assert_eq!((stats.held, stats.lost), (1, 0));
    for takeover in [Takeover::Never, Takeover::WhenOver] {
        let ask = retried(asked.clone().with_takeover(takeover).with_token(Token::random()));
        let claim = store.claim(&ask).await.unwrap();
        assert!(matches!(&claim, Claim::Held(held) if held.fence == record.fence), "{claim:?}");
    }
    // The operator decides, and from then on the record has the form of this version.
    let settled = outcome("seen");
    assert_eq!(
        store.resolve(&asked.key, record.fence, &settled, "seen").await.unwrap(),
        OperatorAck::Applied
    );
    let claim = store.claim(&asked).await.unwrap();
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == settled), "{claim:?}");
    let resolved = store.find(&asked.key).await.unwrap().unwrap();
    // The retention is that of the claim, counted from now.
    assert_eq!(resolved.retention, Duration::from_micros(RETENTION));
    assert!(
        resolved.expires_at().unwrap().as_micros() >= record.created_at.as_micros() + 60 * SECOND + RETENTION
    );
}

/// A held key does not expire: the TTL of the older version ends with the first look at the record.
#[tokio::test]
async fn an_attempt_in_the_old_form_stays_from_the_first_look_on() {
    for look in ["find", "claim", "late release", "list", "stale", "stats"] {
        let place = Place::shared();
        let (store, mut client) = (place.store().await, place.connection().await);
        let (ask, claimed_at) = left(&place, &store, running).await;
        let ttl = format!("PTTL {}", place.name("key"));
        assert!(say::<i64>(&mut client, &ttl).await > 0);
        match look {
            "find" => assert!(store.find(&ask.key).await.unwrap().is_some()),
            "claim" => assert!(matches!(store.claim(&ask).await.unwrap(), Claim::Held(_))),
            "late release" => {
                let other = granted(&store, &testkit::claims::ask(&store, "other").await).await;
                let late = Lease::new(ask.key.clone(), other.token(), other.fence(), 1, other.deadline());
                assert_eq!(store.release(&late).await.unwrap(), Ack::Superseded);
            }
            "list" => assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.len(), 1),
            "stale" => assert_eq!(store.stale(&ListQuery::default()).await.unwrap().records.len(), 1),
            _ => assert_eq!(Inspect::stats(&store).await.unwrap().held, 1),
        }
        assert_eq!(say::<i64>(&mut client, &ttl).await, -1, "after {look}");
        let record = store.find(&ask.key).await.unwrap().unwrap();
        assert_eq!(record.created_at.as_micros(), claimed_at);
        assert_eq!((record.fence.get(), record.version), (claimed_at, 1), "a look is not a change");
        assert_eq!((record.after_crash, record.expires_at()), (AfterCrash::Hold, None));
        assert_eq!(record.retention, Duration::from_micros(RETENTION));
    }
}

#[tokio::test]
async fn the_hook_or_the_operator_takes_a_key_in_the_old_form_over_by_its_fence() {
    let place = Place::shared();
    let (store, asked, record) = upgraded(&place, running).await;
    let ask = retried(asked.with_takeover(Takeover::Of(record.fence)));
    let lease = lease(store.claim(&ask).await.unwrap());
    assert_eq!(lease.attempt(), 2);
    let taken = store.find(lease.key()).await.unwrap().unwrap();
    assert_eq!((taken.after_crash, taken.retention), (AfterCrash::Retry, ask.terms.retention()));
}

#[tokio::test]
async fn an_outcome_in_the_old_form_is_replayed_and_expires_when_it_would_have() {
    let place = Place::shared();
    let done = |claimed_at| {
        // The bytes are status, subtype, headers, and a body.
        let outcome = [&[0, 201, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3][..], b"old"].concat();
        Old { state: b'D', outcome, updated_at: claimed_at + 5 * SECOND, ..running(claimed_at) }
    };
    let (store, asked, record) = upgraded(&place, done).await;
    assert_eq!(record.expires_at().unwrap().as_micros(), record.created_at.as_micros() + RETENTION);
    let kept = Outcome::new(201).unwrap().with_body("old").unwrap();
    let claim = store.claim(&asked.with_intent(Intent::of("charge", "", &1).unwrap())).await.unwrap();
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == kept), "{claim:?}");
}

#[tokio::test]
async fn a_released_key_in_the_old_form_runs_again() {
    let place = Place::shared();
    let released = |claimed_at| Old { state: b'F', ..running(claimed_at) };
    let (store, asked, record) = upgraded(&place, released).await;
    assert_eq!(record.after_crash, AfterCrash::Hold);
    let lease = granted(&store, &asked).await;
    assert!(lease.fence() > record.fence);
}

/// An older version could record an informational status, with which no repeat can be answered.
#[tokio::test]
async fn a_status_that_is_no_answer_is_an_error_and_never_absent() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.connection().await);
    let asked = ask(&store, "key").await;
    let claimed_at = store.now().await.unwrap().as_micros() - 60 * SECOND;
    let outcome = [&[0, 101, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3][..], b"old"].concat();
    let done = Old { state: b'D', outcome, updated_at: claimed_at + 5 * SECOND, ..running(claimed_at) };
    let stored = written(&asked, Token::random(), claimed_at, &done);
    let mut set = cmd("SET");
    set.arg(place.name("key")).arg(stored).arg("PX").arg(100_000);
    set.exec_async(&mut client).await.unwrap();
    let refused = store.find(&asked.key).await.expect_err("it cannot be read");
    assert!(!refused.is_transient(), "{refused}");
    let refused = store.claim(&asked).await.expect_err("it is not free");
    assert!(!refused.is_transient(), "{refused}");
}
