//! An operator's changes, which reach both stores, and the memory of the hot store, which never
//! outlasts the durable record.

use std::time::Duration;

use semel::admin::{Inspect, OperatorAck};
use semel::store::{Ack, Ask, Claim, Hot, Terms, TieredOptions, Token};
use semel::{Store, Tiered};
use testkit::claims::{ask, granted, outcome, retried};
use testkit::stores::tiered::{Own, Place, cache, hot_first};

/// A key with an outcome that the hot store remembers.
async fn done<H: Hot, D: Store>(tier: &Tiered<H, D>, name: &str) -> (Ask, semel::Lease) {
    let asked = ask(tier, name).await;
    let lease = granted(tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome(name)).await.unwrap(), Ack::Applied);
    tier.drain().await;
    assert!(tier.hot().recall(&asked.key).await.unwrap().is_some());
    (asked, lease)
}

fn again(asked: &Ask) -> Ask {
    asked.clone().with_token(Token::random())
}

async fn is_forgotten_by_both<H: Hot, D: Inspect>(tier: &Tiered<H, D>) {
    let (asked, lease) = done(tier, "key").await;
    let change = tier.forget(&asked.key, lease.fence(), "a customer's wish").await.unwrap();
    assert_eq!(change, OperatorAck::Applied);
    assert_eq!(tier.hot().recall(&asked.key).await.unwrap(), None);
    let next = granted(tier, &again(&asked)).await;
    assert_eq!(tier.complete(&next, &outcome("another")).await.unwrap(), Ack::Applied);
    // An entry of the forgotten outcome that is still in flight does not come back, whether or not
    // the hot store knows the new one.
    let claim = tier.claim(&again(&asked)).await.unwrap();
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == outcome("another")), "{claim:?}");
}

#[tokio::test]
async fn forgotten_key_is_new_with_redis_before_postgres() {
    is_forgotten_by_both(&Place::shared().tier().await).await;
}

#[tokio::test]
async fn forgotten_key_is_new_with_memory_before_postgres() {
    is_forgotten_by_both(&hot_first(cache(), Place::shared().durable().await)).await;
}

#[tokio::test]
async fn forgotten_outcome_that_is_still_on_its_way_does_not_come_back() {
    let tier = Place::shared().tier().await;
    let (asked, lease) = done(&tier, "key").await;
    let in_hand = tier.hot().recall(&asked.key).await.unwrap().unwrap();
    assert_eq!(tier.forget(&asked.key, lease.fence(), "a wish").await.unwrap(), OperatorAck::Applied);
    let soon = Duration::from_secs(5);
    tier.hot().plant(&asked.key, &in_hand, Duration::from_secs(600), soon).await.unwrap();
    assert_eq!(tier.hot().recall(&asked.key).await.unwrap(), None);
    granted(&tier, &again(&asked)).await;
}

#[tokio::test]
async fn reset_key_runs_again_whatever_the_hot_store_remembered() {
    let tier = Place::shared().tier().await;
    let (_, old) = done(&tier, "another key").await;
    let stray = tier.hot().recall(old.key()).await.unwrap().unwrap();
    let asked = ask(&tier, "key").await;
    let lost = granted(&tier, &asked).await;
    assert_eq!(tier.abandon(&lost, "lost").await.unwrap(), Ack::Applied);
    // Such an entry cannot be there within a life of the key; if it is nevertheless, a reset
    // removes it.
    tier.hot().plant(&asked.key, &stray, Duration::from_secs(600), Duration::from_secs(5)).await.unwrap();
    assert_eq!(tier.reset(&asked.key, lost.fence(), "nothing happened").await.unwrap(), OperatorAck::Applied);
    assert_eq!(granted(&tier, &again(&asked)).await.attempt(), 2);
}

#[tokio::test]
async fn operator_hears_that_the_hot_store_did_not_and_can_try_again() {
    let mut own = Own::start();
    let tier = own.place.tier().await;
    let (asked, lease) = done(&tier, "key").await;
    own.servers.signal("STOP", "hot").unwrap();
    let error = tier.forget(&asked.key, lease.fence(), "a wish").await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(error.to_string().contains("the hot one (redis) was not reached"), "{error}");
    own.servers.signal("CONT", "hot").unwrap();
    // The key is missing in the durable store by now, which is no reason to leave it in the hot
    // one.
    assert_eq!(tier.forget(&asked.key, lease.fence(), "a wish").await.unwrap(), OperatorAck::Missing);
    assert_eq!(tier.hot().recall(&asked.key).await.unwrap(), None);
    granted(&tier, &again(&asked)).await;
}

#[tokio::test]
async fn repeated_forget_after_a_new_use_of_the_key_takes_nothing_from_it() {
    let mut own = Own::start();
    let tier = own.place.tier().await;
    let (asked, lease) = done(&tier, "key").await;
    own.servers.signal("STOP", "hot").unwrap();
    let error = tier.forget(&asked.key, lease.fence(), "a wish").await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    // A caller that does not ask the hot store gets the key, because it is new.
    let next = granted(tier.durable(), &again(&asked)).await;
    assert_eq!(tier.durable().complete(&next, &outcome("another")).await.unwrap(), Ack::Applied);
    own.servers.signal("CONT", "hot").unwrap();
    let change = tier.forget(&asked.key, lease.fence(), "a wish").await.unwrap();
    assert!(matches!(change, OperatorAck::Moved(_)), "{change:?}");
    let claim = tier.claim(&again(&asked)).await.unwrap();
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == outcome("another")), "{claim:?}");
}

/// The remaining time for which Redis remembers its only key, in milliseconds.
async fn left_in_redis(url: &str) -> i64 {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let [name] = &names[..] else { panic!("{names:?}") };
    redis::cmd("PTTL").arg(name).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn hot_store_never_remembers_for_longer_than_the_durable_one() {
    let own = Own::start();
    let tier = own.place.tier().await;
    let retention = Duration::from_secs(60);
    let terms = Terms::new(Duration::from_secs(1), retention).unwrap();
    let asked = ask(&tier, "key").await.with_terms(terms);
    let lease = granted(&tier, &asked).await;
    // Renewals move the end of the lease but not that of the retention.
    assert_eq!(tier.renew(&lease, Duration::from_secs(3_600)).await.unwrap(), Ack::Applied);
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    tier.drain().await;
    let durable_left = async || {
        let record = tier.find(&asked.key).await.unwrap().unwrap();
        record.expires_at().unwrap().since(tier.now().await.unwrap()).as_millis() as i64
    };
    let left = left_in_redis(&own.place.redis).await;
    assert!(left > 30_000 && left <= durable_left().await, "{left}");

    // The same holds if a read plants it there.
    testkit::stores::tiered::flush(&own.place.redis).await;
    assert!(matches!(tier.claim(&again(&asked)).await.unwrap(), Claim::Done(_)));
    tier.drain().await;
    let left = left_in_redis(&own.place.redis).await;
    assert!(left > 30_000 && left <= durable_left().await, "{left}");
}

#[tokio::test]
async fn hot_store_does_not_outlive_the_durable_one_after_a_claim_that_was_sent_again() {
    let own = Own::start();
    let tier = own.place.tier().await;
    let retention = Duration::from_secs(60);
    let terms = Terms::new(Duration::from_secs(1), retention).unwrap();
    let asked = ask(&tier, "key").await.with_terms(terms);
    let lease = granted(&tier, &asked).await;
    assert_eq!(tier.renew(&lease, Duration::from_secs(3_600)).await.unwrap(), Ack::Applied);
    let lease = granted(&tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    tier.drain().await;
    let left = left_in_redis(&own.place.redis).await;
    assert!(left > 30_000 && left <= 60_000, "{left}");
}

#[tokio::test]
async fn values_out_of_their_limits_are_refused_by_setter() {
    let retention = TieredOptions::new().with_retention(Duration::from_secs(5));
    let timeout = TieredOptions::new().with_timeout(Duration::ZERO).with_retention(Duration::from_secs(60));
    for (options, why) in [
        (retention, "with_retention(5s): set a time from 10s to 315360000s"),
        (timeout, "with_timeout(0ns): set a time from 1ms to 10s"),
    ] {
        let refused = options.open(cache(), semel::MemoryStore::new()).err().expect("refused");
        assert_eq!(refused.to_string(), format!("store refused: {why}"));
    }
}

#[tokio::test]
async fn hot_store_remembers_for_as_long_as_it_is_told_at_most() {
    let own = Own::start();
    let tier = own
        .place
        .tier_with(TieredOptions::new().with_hot_first().with_retention(Duration::from_secs(100)))
        .await;
    done(&tier, "key").await;
    let left = left_in_redis(&own.place.redis).await;
    assert!((50_000..=100_000).contains(&left), "{left}");
}

#[tokio::test]
async fn outcome_that_is_soon_over_is_not_remembered() {
    let tier = Place::shared().tier().await;
    let short = Duration::from_secs(2);
    let terms = Terms::new(Duration::from_secs(1), short).unwrap();
    let asked = retried(ask(&tier, "key").await.with_terms(terms));
    let lease = granted(&tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    assert!(matches!(tier.claim(&again(&asked)).await.unwrap(), Claim::Done(_)));
    tier.drain().await;
    assert_eq!(tier.hot().recall(&asked.key).await.unwrap(), None);
    tokio::time::sleep(short).await;
    assert_eq!(granted(&tier, &again(&asked)).await.attempt(), 1);
}
