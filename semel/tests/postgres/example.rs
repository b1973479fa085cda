//! The example, run as it is.

use testkit::stores::postgres::Place;

#[path = "../../examples/postgres_transaction.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod postgres_transaction;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_charges_once() {
    let url = Place::shared().url;
    assert_eq!(postgres_transaction::run(&url).await.unwrap(), 1);
}
