//! Answers that wait for replicas.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use semel::store::{Ask, Claim, Void};
use semel::{Lease, RedisStore, Store, StoreError};
use testkit::claims::{ask_at, done, granted, is_replayed, lease, outcome};
use testkit::servers::RedisServers;
use testkit::stores::redis::{Place, connection, say, settled};
use testkit::until::until;

use crate::connecting::pair;

/// A master whose replica can be frozen.
struct Pair {
    servers: RedisServers,
    place: Place,
}

impl Pair {
    async fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let (master, _) = pair(&mut servers, "").await;
        Self { servers, place: Place::on(master) }
    }

    /// A store that waits for the replica.
    async fn careful(&self) -> RedisStore {
        let options = self.place.options().with_replicas(1).with_timeout(Duration::from_millis(1_500));
        options.connect().await.unwrap()
    }
}

/// A claim at the time of the store, after several tries if necessary: the time, too, waits for the
/// replica.
async fn asked(store: &RedisStore, name: &str) -> Ask {
    ask_at(settled(async || store.now().await).await, name)
}

/// A grant, after several tries if necessary: on a slow machine the replica may need more time than
/// the store gives it.
async fn granted_at_last(store: &RedisStore, asked: &Ask) -> Lease {
    lease(settled(async || store.claim(asked).await).await)
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.expect_err("the replica is frozen");
    assert!(error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_claim_that_the_replica_lacks_is_unknown_to_every_caller() {
    let mut pair = Pair::start().await;
    let store = pair.careful().await;
    let before = granted_at_last(&store, &asked(&store, "before").await).await;
    let asked = asked(&store, "key").await;
    pair.servers.signal("STOP", "replica").unwrap();
    is_unknown(store.claim(&asked).await);
    // The record exists by now, so that this writes nothing; the point is that the replica lacks
    // it.
    is_unknown(store.claim(&asked).await);
    let other = pair.careful().await;
    is_unknown(other.claim(&asked).await);
    is_unknown(other.claim(&ask_at(asked.not_after, "key").with_not_after(asked.not_after)).await);
    is_unknown(other.find(&asked.key).await);
    // A store that does not require replicas does not wait for them.
    let careless = pair.place.store().await;
    let lease = granted(&careless, &asked).await;
    assert_eq!((lease.attempt(), lease.token()), (1, asked.token));
    is_unknown(store.complete(&before, &outcome("before")).await);

    pair.servers.signal("CONT", "replica").unwrap();
    for store in [&store, &other] {
        let claim = settled(async || store.claim(&asked).await).await;
        assert!(matches!(&claim, Claim::Granted(again) if again.fence() == lease.fence()), "{claim:?}");
    }
    assert!(settled(async || store.complete(&before, &outcome("before")).await).await.stands());
}

#[tokio::test]
async fn an_outcome_that_the_replica_has_not_got_is_not_replayed() {
    let mut pair = Pair::start().await;
    let (store, other) = (pair.careful().await, pair.careful().await);
    let lease = granted_at_last(&store, &asked(&store, "key").await).await;
    let repeat = asked(&other, "key").await;
    pair.servers.signal("STOP", "replica").unwrap();
    is_unknown(store.complete(&lease, &outcome("key")).await);
    is_unknown(store.complete(&lease, &outcome("key")).await);
    is_unknown(other.claim(&repeat).await);
    pair.servers.signal("CONT", "replica").unwrap();
    let claim = settled(async || other.claim(&repeat).await).await;
    assert!(is_replayed(&claim, "key"), "{claim:?}");
}

/// The position of the master, and the position that the replica has acknowledged.
async fn offsets(master: &mut MultiplexedConnection) -> (u64, u64) {
    let info: String = say(master, "INFO replication").await;
    let number = |before: &str| -> u64 {
        let (_, rest) = info.split_once(before).unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    (number("master_repl_offset:"), number(",offset="))
}

/// From Redis 7.2 on, `WAIT` waits only for the writes of its own connection. A repeat that wrote
/// nothing would be answered although the replica lacks the record that it shows.
#[tokio::test]
async fn a_repeat_is_itself_something_that_the_replica_has_to_get() {
    let pair = Pair::start().await;
    let store = pair.careful().await;
    let asked = asked(&store, "running").await;
    let lease = granted_at_last(&store, &asked).await;
    let key = done(&pair.place.store().await, "done").await;
    let mut master = connection(&pair.place.url).await;
    let name = pair.place.name("done");
    let end: u64 = say(&mut master, &format!("PEXPIRETIME {name}")).await;
    for repeat in ["claim", "replay", "late write", "find"] {
        let mut before = 0;
        until("the replica has all there is", async || {
            let (written, acknowledged) = offsets(&mut master).await;
            before = written;
            written == acknowledged
        })
        .await;
        match repeat {
            "claim" => assert_eq!(granted_at_last(&store, &asked).await.fence(), lease.fence()),
            "replay" => {
                let claim = settled(async || {
                    store.claim(&ask_at(asked.not_after, "done").with_not_after(asked.not_after)).await
                })
                .await;
                assert!(is_replayed(&claim, "done"), "{claim:?}");
            }
            "late write" => {
                let void = settled(async || store.void(&key, asked.token, asked.not_after).await).await;
                assert!(matches!(void, Void::Early(_)), "{void:?}");
            }
            _ => assert!(settled(async || store.find(&key).await).await.is_some()),
        }
        assert!(offsets(&mut master).await.0 > before, "{repeat}");
    }
    assert_eq!(say::<u64>(&mut master, &format!("PEXPIRETIME {name}")).await, end);
}

#[tokio::test]
async fn nothing_is_said_while_there_is_no_replica_at_all() {
    let mut pair = Pair::start().await;
    let store = pair.careful().await;
    let asked = asked(&store, "key").await;
    pair.servers.signal("KILL", "replica").unwrap();
    is_unknown(store.claim(&asked).await);
    is_unknown(store.claim(&asked).await);
    let mut master = connection(&pair.place.url).await;
    assert!(say::<bool>(&mut master, &format!("EXISTS {}", pair.place.name("key"))).await);
}
