//! The failures of other designs of two tiers, case by case: here they cost time, and cause neither
//! a second run nor a stuck key.

use std::time::Duration;

use semel::admin::Inspect;
use semel::store::{Ack, Ask, Claim, Hot, Token};
use semel::{Failure, Intent, Key, Once, RunError, Store};
use testkit::claims::{ask, granted, outcome};
use testkit::servers::Servers;
use testkit::stores::tiered::{Own, Place, flush};
use testkit::until::until;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The same request by another attempt.
fn again(asked: &Ask) -> Ask {
    asked.clone().with_token(Token::random())
}

/// Checks that another attempt gets the outcome of this name.
async fn replays(store: &impl Store, asked: &Ask, name: &str) {
    let claim = store.claim(&again(asked)).await.unwrap();
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == outcome(name)), "{claim:?}");
}

async fn is_running(store: &impl Store, asked: &Ask) {
    let claim = store.claim(&again(asked)).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
}

#[tokio::test]
async fn flush_between_claim_and_complete() {
    let own = Own::start();
    let tier = own.place.tier().await;
    let asked = ask(&tier, "key").await;
    let lease = granted(&tier, &asked).await;
    flush(&own.place.redis).await;
    is_running(&tier, &asked).await;
    flush(&own.place.redis).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    for _ in 0..3 {
        replays(&tier, &asked, "it").await;
    }
}

#[tokio::test]
async fn flush_after_complete() {
    let own = Own::start();
    let tier = own.place.tier().await;
    let asked = ask(&tier, "key").await;
    let lease = granted(&tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    tier.drain().await;
    assert!(tier.hot().recall(&asked.key).await.unwrap().is_some(), "completion has reached the hot store");
    for _ in 0..3 {
        flush(&own.place.redis).await;
        // In other designs the first failure leaves "in progress" behind, and all repeats are
        // refused for a day.
        for _ in 0..3 {
            replays(&tier, &asked, "it").await;
        }
        tier.drain().await;
        assert!(tier.hot().recall(&asked.key).await.unwrap().is_some(), "reads warm the hot store");
    }
}

#[tokio::test]
async fn hot_restart() {
    let mut own = Own::start();
    let tier = own.place.tier().await;
    let (done, runs) = (ask(&tier, "done").await, ask(&tier, "runs").await);
    let lease = granted(&tier, &done).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    let running = granted(&tier, &runs).await;
    tier.drain().await;
    own.servers.signal("KILL", "hot").unwrap();
    replays(&tier, &done, "it").await;
    is_running(&tier, &runs).await;
    own.servers.start("hot", "").unwrap();
    replays(&tier, &done, "it").await;
    is_running(&tier, &runs).await;
    assert_eq!(tier.complete(&running, &outcome("that")).await.unwrap(), Ack::Applied);
    until("the hot store is tried again, and warmed", async || {
        replays(&tier, &done, "it").await;
        replays(&tier, &runs, "that").await;
        tier.drain().await;
        let recalled = [tier.hot().recall(&done.key).await, tier.hot().recall(&runs.key).await];
        recalled.into_iter().all(|found| found.is_ok_and(|found| found.is_some()))
    })
    .await;
}

#[tokio::test]
async fn hot_frozen_for_longer_than_its_timeout() {
    let mut own = Own::start();
    let tier = own.place.tier().await;
    let asked = ask(&tier, "key").await;
    let first = granted(&tier, &asked).await;
    own.servers.signal("STOP", "hot").unwrap();
    let began = Instant::now();
    assert_eq!(tier.complete(&first, &outcome("it")).await.unwrap(), Ack::Applied);
    for number in 0..50 {
        replays(&tier, &asked, "it").await;
        let other = ask(&tier, &format!("key {number}")).await;
        let lease = granted(&tier, &other).await;
        is_running(&tier, &other).await;
        assert_eq!(tier.complete(&lease, &outcome("other")).await.unwrap(), Ack::Applied);
    }
    // The server is frozen for longer than any timeout.
    sleep(Duration::from_secs(3).saturating_sub(began.elapsed())).await;
    own.servers.signal("CONT", "hot").unwrap();
    for number in 0..50 {
        replays(&tier, &ask(&tier, &format!("key {number}")).await, "other").await;
    }
    replays(&tier, &asked, "it").await;
}

#[tokio::test]
async fn hot_answering_with_an_older_state() {
    let place = Place::shared();
    let tier = place.tier().await;
    let asked = ask(&tier, "key").await;
    // A Redis that was a store by itself before answers "running", and later with an unreadable
    // value.
    let _old = granted(tier.hot(), &asked).await;
    let lease = granted(&tier, &again(&asked)).await;
    is_running(&tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    replays(&tier, &asked, "it").await;
    tier.drain().await;

    let client = redis::Client::open(&*place.redis).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let pattern = format!("{}+hot:*", place.name);
    let names: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
    assert!(!names.is_empty());
    for name in names {
        let _: () =
            redis::cmd("SET").arg(name).arg("\u{9}nonsense").query_async(&mut connection).await.unwrap();
    }
    replays(&tier, &asked, "it").await;
}

#[tokio::test]
async fn durable_out_while_hot_is_up_and_durable_back() {
    let mut server = Servers::postgres(&[]).unwrap();
    let tier = Place::over(server.url()).tier().await;
    let (done, fresh) = (ask(&tier, "done").await, ask(&tier, "fresh").await);
    let lease = granted(&tier, &done).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    tier.drain().await;
    server.crash().unwrap();
    for _ in 0..100 {
        // None of this reaches Postgres, which does not exist here.
        replays(&tier, &done, "it").await;
    }
    let mismatch = again(&done).with_intent(Intent::of("charge", "", &2).unwrap());
    // The description of a mismatch is in the record, so that only Postgres knows it.
    let refused = tier.claim(&mismatch).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    let refused = tier.claim(&fresh).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    // Through the engine, too, nothing runs, and HTTP would answer 503.
    let once = Once::new(tier.clone());
    let key = Key::new("tests", "engine").unwrap();
    let run = once.run(&key, &fresh.intent, |_| async { Ok::<_, Failure>("it ran".to_owned()) });
    assert!(matches!(run.await, Err(RunError::Unavailable(_))));

    server.start_again().unwrap();
    // In other designs, a failure of the database after the claim in Redis locks the key.
    let mut lease = None;
    until("the durable store grants again", async || {
        if let Ok(Claim::Granted(granted)) = tier.claim(&fresh).await {
            lease = Some(granted);
        }
        lease.is_some()
    })
    .await;
    assert_eq!(tier.complete(&lease.unwrap(), &outcome("that")).await.unwrap(), Ack::Applied);
    replays(&tier, &fresh, "that").await;
    replays(&tier, &done, "it").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_tasks_one_wins_while_redis_is_flushed() {
    let own = Own::start();
    let tiers = [own.place.tier().await, own.place.tier().await];
    for round in 0..20 {
        let asked = ask(&tiers[0], &format!("key {round}")).await;
        let mut tasks = JoinSet::new();
        for number in 0..64 {
            let (tier, asked) = (tiers[number % 2].clone(), again(&asked));
            tasks.spawn(async move { tier.claim(&asked).await.unwrap() });
        }
        flush(&own.place.redis).await;
        let claims = tasks.join_all().await;
        let won: Vec<_> = claims
            .iter()
            .filter_map(|claim| if let Claim::Granted(lease) = claim { Some(lease) } else { None })
            .collect();
        assert_eq!(won.len(), 1, "{claims:?}");
        assert_eq!(tiers[1].complete(won[0], &outcome("it")).await.unwrap(), Ack::Applied);
        flush(&own.place.redis).await;
        replays(&tiers[0], &asked, "it").await;
    }
    let stale = tiers[0].stale(&semel::admin::ListQuery::default()).await.unwrap();
    assert!(stale.records.is_empty());
}
