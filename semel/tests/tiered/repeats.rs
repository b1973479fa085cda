//! The hot store serves repeats, and costs new keys nothing.

use semel::admin::{Inspect, OperatorAck};
use semel::store::{Ack, Ask, Claim, Hot, MemoryCache};
use semel::{MemoryStore, Store, Tiered};
use testkit::claims::{ask, granted, outcome, retried};
use testkit::stores::tiered::{cache, hot_first};

type Tier = Tiered<MemoryCache, MemoryStore>;

async fn done(tier: &Tier, name: &str) -> Ask {
    let asked = ask(tier, name).await;
    let lease = granted(tier, &asked).await;
    assert_eq!(tier.complete(&lease, &outcome(name)).await.unwrap(), Ack::Applied);
    tier.drain().await;
    asked
}

async fn is_planted(tier: &Tier, asked: &Ask) -> bool {
    tier.hot().recall(&asked.key).await.unwrap().is_some()
}

async fn is_replayed(tier: &Tier, asked: &Ask) -> bool {
    let claim = tier.claim(&retried(asked.clone())).await.unwrap();
    tier.drain().await;
    matches!(claim, Claim::Done(_))
}

/// Removes the record behind the back of the hot store: what is replayed then comes from there.
async fn lose(tier: &Tier, asked: &Ask) {
    let record = tier.durable().find(&asked.key).await.unwrap().unwrap();
    let change = tier.durable().forget(&asked.key, record.fence, "lost").await.unwrap();
    assert_eq!(change, OperatorAck::Applied);
}

#[tokio::test]
async fn the_first_repeat_plants_an_outcome() {
    let tier = Tiered::new(cache(), MemoryStore::new());
    let asked = done(&tier, "key").await;
    assert!(!is_planted(&tier, &asked).await);
    assert!(is_replayed(&tier, &asked).await);
    assert!(is_planted(&tier, &asked).await);
}

#[tokio::test]
async fn frequent_repeats_are_answered_without_the_durable_store() {
    let tier = Tiered::new(cache(), MemoryStore::new());
    let asked = done(&tier, "key").await;
    for _ in 0..16 {
        assert!(is_replayed(&tier, &asked).await);
    }
    lose(&tier, &asked).await;
    assert!(is_replayed(&tier, &asked).await);
}

#[tokio::test]
async fn new_keys_do_not_ask_the_hot_store() {
    let tier = Tiered::new(cache(), MemoryStore::new());
    let asked = done(&tier, "key").await;
    assert!(is_replayed(&tier, &asked).await);
    for n in 0..16 {
        done(&tier, &format!("new {n}")).await;
    }
    lose(&tier, &asked).await;
    assert!(!is_replayed(&tier, &asked).await, "it was asked, although repeats are rare");
}

#[tokio::test]
async fn with_hot_first_every_outcome_is_planted_and_every_claim_asks() {
    let tier = hot_first(cache(), MemoryStore::new());
    let asked = done(&tier, "key").await;
    assert!(is_planted(&tier, &asked).await);
    lose(&tier, &asked).await;
    assert!(is_replayed(&tier, &asked).await);
}
