//! The entries of a hot store, in both implementations.

use std::time::Duration;

use semel::store::{Done, Hot, Remembered};
use semel::{Fence, Intent, Key, Outcome, Timestamp};
use testkit::stores::tiered::{Place, cache};
use testkit::until::until;

const LONG: Duration = Duration::from_secs(600);

fn key() -> Key {
    Key::new("tests", "a: \"key\"").unwrap()
}

fn remembered(fence: u64) -> Remembered {
    let body = [b"\0binary\xff".as_slice(), &fence.to_be_bytes()].concat();
    let outcome = Outcome::new(201).unwrap().with_body(body).unwrap().with_subtype("created").unwrap();
    let outcome = outcome.with_headers([("link", "a"), ("link", "b")]).unwrap();
    let expires_at = Timestamp::from_micros(1_800_000_000_000_000);
    let intent = Intent::of("POST /charges", "invoice 7", &fence).unwrap();
    Remembered::new(intent, Done::new(outcome, Fence::new(fence), expires_at))
}

async fn plant(hot: &dyn Hot, fence: u64) {
    hot.plant(&key(), &remembered(fence), LONG, LONG).await.unwrap();
}

async fn recalled(hot: &dyn Hot) -> Option<Remembered> {
    hot.recall(&key()).await.unwrap()
}

async fn the_newer_entry_stays(hot: &dyn Hot) {
    assert_eq!(recalled(hot).await, None);
    plant(hot, 20).await;
    assert_eq!(recalled(hot).await, Some(remembered(20)));
    plant(hot, 10).await;
    assert_eq!(recalled(hot).await, Some(remembered(20)), "an older one does not take its place");
    plant(hot, 30).await;
    assert_eq!(recalled(hot).await, Some(remembered(30)));
    hot.bury(&key(), Fence::new(29), LONG).await.unwrap();
    assert_eq!(recalled(hot).await, Some(remembered(30)), "somebody else was forgotten");
    hot.bury(&key(), Fence::new(30), LONG).await.unwrap();
    assert_eq!(recalled(hot).await, None);
    plant(hot, 30).await;
    assert_eq!(recalled(hot).await, None, "what was forgotten does not come back");
    plant(hot, 31).await;
    assert_eq!(recalled(hot).await, Some(remembered(31)));
}

async fn nothing_is_remembered_for_too_long(hot: &dyn Hot) {
    let short = Duration::from_millis(300);
    hot.plant(&key(), &remembered(1), short, LONG).await.unwrap();
    tokio::time::sleep(short + Duration::from_millis(50)).await;
    assert_eq!(recalled(hot).await, None);
    // Fences of real stores are microseconds, far beyond what 32 bits hold.
    let fence = 1_800_000_000_000_000;
    plant(hot, fence).await;
    hot.bury(&key(), Fence::new(fence), LONG).await.unwrap();
    plant(hot, fence).await;
    assert_eq!(recalled(hot).await, None);
    hot.bury(&key(), Fence::new(fence), short).await.unwrap();
    until("the trace of the forgotten fades", async || {
        plant(hot, fence).await;
        recalled(hot).await == Some(remembered(fence))
    })
    .await;
}

#[tokio::test]
async fn the_newer_entry_stays_in_redis() {
    the_newer_entry_stays(&Place::shared().hot().await).await;
}

#[tokio::test]
async fn the_newer_entry_stays_in_memory() {
    the_newer_entry_stays(&cache()).await;
}

#[tokio::test]
async fn redis_remembers_nothing_for_too_long() {
    nothing_is_remembered_for_too_long(&Place::shared().hot().await).await;
}

#[tokio::test]
async fn memory_remembers_nothing_for_too_long() {
    nothing_is_remembered_for_too_long(&cache()).await;
}

#[tokio::test]
async fn an_entry_that_reaches_redis_too_late_is_ignored() {
    let hot = Place::shared().hot().await;
    hot.plant(&key(), &remembered(1), LONG, Duration::ZERO).await.unwrap();
    assert_eq!(recalled(&hot).await, None);
}

#[tokio::test]
async fn memory_keeps_to_its_bytes() {
    let cache = semel::store::MemoryCache::new(100_000);
    let body = vec![7; 5_000];
    let key = |number: u32| Key::new("tests", &number.to_string()).unwrap();
    for number in 0..1_000 {
        let mut large = remembered(1);
        large.done.outcome = large.done.outcome.with_body(body.clone()).unwrap();
        cache.plant(&key(number), &large, LONG, LONG).await.unwrap();
    }
    let mut kept = 0;
    for number in 0..1_000 {
        kept += u32::from(cache.recall(&key(number)).await.unwrap().is_some());
    }
    assert!((5..=20).contains(&kept), "{kept} of 5,000 bytes each are kept");
}
