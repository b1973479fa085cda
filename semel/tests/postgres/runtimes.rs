//! Runtimes that end before the store does.

use testkit::ended::{answers_while_its_runtime_ends, refuses_when_its_runtime_has_ended};
use testkit::stores::postgres::Place;

#[test]
fn a_store_whose_runtime_has_ended_refuses_at_once() {
    let place = Place::shared();
    refuses_when_its_runtime_has_ended(place.store());
}

#[test]
fn callers_are_answered_while_the_runtime_of_the_store_ends() {
    let place = Place::shared();
    answers_while_its_runtime_ends(place.store());
}
