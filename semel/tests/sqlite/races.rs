//! Races for keys, between tasks and between processes.

use semel::SqliteStore;
use testkit::contest;
use testkit::stores::sqlite::Place;

/// Two stores on one file, as in two processes. The file is removed with the first of the pair.
async fn two_stores() -> (Place, [SqliteStore; 2]) {
    let place = Place::new();
    let stores = [place.store().await, place.store().await];
    (place, stores)
}

#[tokio::test]
async fn one_of_many_gets_a_new_key() {
    let (_place, stores) = two_stores().await;
    contest::one_of_many_gets_a_new_key(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all() {
    let (_place, stores) = two_stores().await;
    contest::one_of_many_gets_a_lost_key_and_its_first_owner_may_come_before_all(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_keys_is_run_once_and_replayed_to_all() {
    let (_place, stores) = two_stores().await;
    contest::each_of_many_keys_is_run_once_and_replayed_to_all(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_outcomes_of_an_owner_is_recorded() {
    let (_place, stores) = two_stores().await;
    contest::one_of_many_outcomes_of_an_owner_is_recorded(stores).await;
}
