//! A hot store that is slow or down is skipped, and only the first few callers notice.

use std::time::Duration;

use semel::Store;
use semel::store::{Ack, Claim, TieredOptions};
use testkit::claims::{ask, granted, outcome};
use testkit::stores::tiered::Own;
use tokio::time::Instant;

/// The duration of a claim of a new key.
async fn claim(tier: &impl Store, name: &str) -> Duration {
    let asked = ask(tier, name).await;
    let began = Instant::now();
    granted(tier, &asked).await;
    began.elapsed()
}

/// The number of claims that waited before the hot store was skipped.
async fn slow_claims(tier: &impl Store, timeout: Duration) -> usize {
    let mut slow = 0;
    for number in 0..60 {
        slow += usize::from(claim(tier, &format!("key {number}")).await >= timeout);
    }
    slow
}

#[tokio::test]
async fn the_first_few_wait_for_a_frozen_hot_store_and_later_claims_do_not() {
    let mut own = Own::start();
    let timeout = Duration::from_secs(1);
    let tier = own.place.tier_with(TieredOptions::new().with_hot_first().with_timeout(timeout)).await;
    claim(&tier, "before").await;
    own.servers.signal("STOP", "hot").unwrap();
    let slow = slow_claims(&tier, timeout).await;
    // Three failures in a row are enough. A busy machine may add slow claims of its own.
    assert!((3..30).contains(&slow), "{slow} of 60 claims have waited");
    own.servers.signal("CONT", "hot").unwrap();
}

#[tokio::test]
async fn dead_hot_store_is_not_waited_for_and_comes_back_by_itself() {
    let mut own = Own::start();
    let tier = own.place.tier().await;
    let asked = ask(&tier, "done").await;
    let lease = granted(&tier, &asked).await;
    own.servers.signal("KILL", "hot").unwrap();
    assert_eq!(tier.complete(&lease, &outcome("it")).await.unwrap(), Ack::Applied);
    for number in 0..100 {
        claim(&tier, &format!("key {number}")).await;
    }

    own.servers.start("hot", "").unwrap();
    let began = Instant::now();
    let mut recalled = false;
    while !recalled {
        assert!(began.elapsed() < Duration::from_secs(60), "the hot store was not tried again");
        let claim = tier.claim(&asked.clone().with_token(semel::store::Token::random())).await.unwrap();
        assert!(matches!(claim, Claim::Done(_)), "{claim:?}");
        tier.drain().await;
        recalled = semel::store::Hot::recall(tier.hot(), &asked.key).await.is_ok_and(|found| found.is_some());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
