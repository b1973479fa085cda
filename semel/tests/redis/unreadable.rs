//! Records that cannot be read, which are errors, never absent, and never overwritten.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use semel::admin::{Inspect, ListQuery, Prune, Stats};
use semel::store::{Takeover, Token};
use semel::{Fence, Store, StoreError};
use testkit::claims::{ask, granted, outcome, retried};
use testkit::stores::redis::{Place, Server, say};

/// The damage to the value under the name of a record.
#[derive(Debug)]
enum Damage {
    Replaced(u8, usize),
    CutAt(usize),
    AnotherType,
}

/// The size of the head of a record.
const HEAD_BYTES: usize = 87;

const DAMAGES: [Damage; 9] = [
    // The format is that of a newer version, or none.
    Damage::Replaced(3, 0),
    Damage::Replaced(0, 0),
    // A state that is not known.
    Damage::Replaced(b'X', 1),
    Damage::CutAt(0),
    Damage::CutAt(1),
    Damage::CutAt(HEAD_BYTES - 1),
    Damage::CutAt(HEAD_BYTES),
    // The cut is in the middle of the intent: the head is whole, and token and fence can still be
    // read.
    Damage::CutAt(HEAD_BYTES + 20),
    Damage::AnotherType,
];

impl Damage {
    async fn apply(&self, client: &mut MultiplexedConnection, name: &str) {
        let mut stored: Vec<u8> = cmd("GET").arg(name).query_async(client).await.unwrap();
        let mut set = cmd("SET");
        set.arg(name);
        match self {
            Self::Replaced(byte, at) => stored[*at] = *byte,
            Self::CutAt(length) => stored.truncate(*length),
            Self::AnotherType => {
                say::<i64>(client, &format!("DEL {name}")).await;
                say::<i64>(client, &format!("RPUSH {name} a b")).await;
                return say::<()>(client, &format!("EXPIRE {name} 600")).await;
            }
        }
        set.arg(stored).arg("KEEPTTL").exec_async(client).await.unwrap();
    }
}

fn is_unreadable<T: std::fmt::Debug>(answer: Result<T, StoreError>, what: &str) {
    let error = answer.expect_err(what);
    assert!(!error.is_transient(), "{what}: {error}");
    assert!(error.to_string().starts_with("record not understood"), "{what}: {error}");
}

#[tokio::test]
async fn an_unreadable_record_is_an_error_to_all_and_stays_as_it_is() {
    let server = Server::start("");
    for damage in DAMAGES {
        let place = server.place();
        let (store, mut client) = (place.store().await, place.connection().await);
        let name = place.name("key");
        let asked = ask(&store, "key").await;
        let lease = granted(&store, &asked).await;
        damage.apply(&mut client, &name).await;
        let before: Vec<u8> = say(&mut client, &format!("DUMP {name}")).await;
        let place_of = |verb: &str| format!("{verb} after {damage:?}");

        is_unreadable(store.claim(&ask(&store, "key").await).await, &place_of("claim"));
        is_unreadable(store.claim(&asked).await, &place_of("repeated claim"));
        let taking = ask(&store, "key").await.with_takeover(Takeover::WhenOver);
        is_unreadable(store.claim(&taking).await, &place_of("takeover"));
        is_unreadable(store.complete(&lease, &outcome("key")).await, &place_of("complete"));
        is_unreadable(store.renew(&lease, Duration::from_secs(1)).await, &place_of("renew"));
        is_unreadable(store.release(&lease).await, &place_of("release"));
        is_unreadable(store.abandon(&lease, "lost").await, &place_of("abandon"));
        let void = store.void(&asked.key, asked.token, asked.not_after).await;
        is_unreadable(void, &place_of("void"));
        let void = store.void(&asked.key, Token::random(), asked.not_after).await;
        is_unreadable(void, &place_of("void of another"));
        is_unreadable(store.find(&asked.key).await, &place_of("find"));
        is_unreadable(store.list(&ListQuery::default()).await, &place_of("list"));
        let exactly = ListQuery::default()
            .with_realm(Some("tests".into()))
            .with_principal(Some(String::new()))
            .with_value(Some("key".into()));
        is_unreadable(store.list(&exactly).await, &place_of("list of one"));
        assert_eq!(Inspect::stats(&store).await.unwrap(), Stats::default(), "it is in no phase");
        let forget = store.forget(&asked.key, Fence::new(1), "no use").await;
        is_unreadable(forget, &place_of("forget"));
        // An unreadable record does not affect the others.
        granted(&store, &ask(&store, "another").await).await;
        assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0, "{damage:?}");

        let after: Vec<u8> = say(&mut client, &format!("DUMP {name}")).await;
        assert!(before == after, "{damage:?} was written over");
    }
}

#[tokio::test]
async fn unreadable_records_do_not_affect_other_keys() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.connection().await);
    let bad = ask(&store, "bad").await;
    granted(&store, &bad).await;
    Damage::CutAt(HEAD_BYTES).apply(&mut client, &place.name("bad")).await;
    let good = ask(&store, "good").await;
    granted(&store, &good).await;
    let keys = [good.key.clone(), bad.key.clone(), semel::Key::new("tests", "absent").unwrap()];
    let mut found = store.find_many(&keys).await.unwrap().into_iter();
    assert_eq!(found.next().unwrap().unwrap().unwrap().token, good.token);
    is_unreadable(found.next().unwrap(), "find_many");
    assert_eq!(found.next().unwrap().unwrap(), None);
}

/// Another application has stored a value without an expiry under a name like that of a record.
#[tokio::test]
async fn a_foreign_value_does_not_prevent_pruning() {
    let server = Server::start("");
    let place = server.place();
    let (store, mut client) = (place.store().await, place.connection().await);
    say::<()>(&mut client, &format!("SET {} text", place.name("foreign"))).await;
    let terms =
        semel::store::Terms::new(semel::store::Terms::MIN_LEASE, semel::store::Terms::MIN_LEASE).unwrap();
    let lease = granted(&store, &retried(ask(&store, "key").await.with_terms(terms))).await;
    testkit::until::until("it is over", async || store.find(lease.key()).await.unwrap().is_none()).await;
    // The sweep uses the last known time, which may be a moment old.
    testkit::until::until("it is removed", async || store.prune(&Prune::default()).await.unwrap() == 1).await;
    assert!(say::<bool>(&mut client, &format!("EXISTS {}", place.name("foreign"))).await);
}
