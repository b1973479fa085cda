//! Races for keys, between tasks and between processes.

use semel::RedisStore;
use testkit::contest;
use testkit::stores::redis::Place;

/// Two stores, as in two processes.
async fn two_stores() -> [RedisStore; 2] {
    let place = Place::shared();
    [place.store().await, place.store().await]
}

#[tokio::test]
async fn one_of_many_gets_a_new_key() {
    contest::one_of_many_gets_a_new_key(two_stores().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all() {
    contest::one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all(two_stores().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_keys_is_run_once_and_replayed_to_all() {
    contest::each_of_many_keys_is_run_once_and_replayed_to_all(two_stores().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_outcomes_of_an_owner_is_recorded() {
    contest::one_of_many_outcomes_of_an_owner_is_recorded(two_stores().await).await;
}
