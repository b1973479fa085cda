//! `semel stats`.

use serde_json::{Value, json};
use testkit::on_every_store;

use crate::place::Place;
use crate::process::semel;

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        records_are_counted_by_state,
    }
}

async fn records_are_counted_by_state(place: Place) {
    place.running("a").await;
    place.held("b").await;
    place.held("c").await;
    place.done("d").await;
    place.done("e").await;
    place.done("f").await;
    place.released("g").await;
    place.lost("h").await;
    let mut counted = place.semel(&["stats", "--output", "json"]).json();
    let expected = [("running", 1), ("held", 2), ("lost", 1), ("done", 3), ("released", 1)];
    if place.is_shared {
        let counts = counted[0].as_object().unwrap();
        assert!(expected.iter().all(|(state, count)| counts[*state].as_u64() >= Some(*count)), "{counts:?}");
        return;
    }
    let mut object: serde_json::Map<String, Value> =
        expected.iter().map(|(state, count)| ((*state).to_owned(), json!(count))).collect();
    object.insert("estimated".to_owned(), json!(false));
    assert_eq!(counted.remove(0), Value::Object(object));
    let table = place.semel(&["stats"]).ok();
    assert_eq!(table, "STATE     RECORDS\nrunning   1\nheld      2\nlost      1\ndone      3\nreleased  1\n");
}

#[test]
fn there_is_nothing_in_memory() {
    assert!(semel(&["stats", "--store", "memory:"]).ok().contains("done      0\n"));
}
