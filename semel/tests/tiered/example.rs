//! The example, run as it is.

use testkit::stores::tiered::Place;

#[path = "../../examples/tiered.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod tiered;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_charges_once() {
    let place = Place::shared();
    assert_eq!(tiered::run(&place.postgres, &place.redis).await.unwrap(), 1);
}
