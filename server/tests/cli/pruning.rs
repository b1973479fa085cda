//! `semel prune`.

use serde_json::json;
use testkit::on_every_store;

use crate::place::Place;
use crate::process::semel;

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        expired_records_are_removed_and_others_stay,
        recently_expired_records_may_stay,
        a_dry_run_removes_nothing,
        every_batch_is_gone_through,
        erasing_is_refused_before_anything_is_removed_unless_the_store_is_sqlite,
    }
}

async fn expired_records_are_removed_and_others_stay(place: Place) {
    place.done("k-done").await;
    place.held("k-held").await;
    place.expired("k-1").await;
    place.expired("k-2").await;
    let ran = place.of_realm(&["prune"]);
    assert_eq!(ran.err, "", "progress is for terminals");
    assert_eq!(ran.ok(), "removed 2 expired records\n");
    assert_eq!(place.of_realm(&["list", "--output", "json"]).json().len(), 2);
    assert_eq!(place.of_realm(&["prune"]).ok(), "removed 0 expired records\n");
}

async fn recently_expired_records_may_stay(place: Place) {
    place.expired("k-1").await;
    place.held("k-held").await;
    let kept = place.of_realm(&["prune", "--expired-for", "1h"]).ok();
    assert_eq!(kept, "removed 0 expired records\n");
    while place.of_realm(&["prune", "--expired-for", "1s", "--output", "json"]).json()[0]["removed"] == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(place.of_realm(&["list", "--output", "json"]).json().len(), 1);
}

async fn a_dry_run_removes_nothing(place: Place) {
    place.done("k-done").await;
    place.expired("k-1").await;
    assert_eq!(place.of_realm(&["prune", "--dry-run"]).ok(), "1 expired record; none was removed\n");
    let line = |removed: u32, dry_run: bool| json!({ "realm": place.realm, "expired": 1, "removed": removed, "dry_run": dry_run });
    assert_eq!(place.of_realm(&["prune", "--dry-run", "--output", "json"]).json(), [line(0, true)]);
    assert_eq!(place.of_realm(&["list", "--output", "json"]).json().len(), 2);
    assert_eq!(place.of_realm(&["prune", "--output", "json"]).json(), [line(1, false)]);
    assert_eq!(place.of_realm(&["list", "--output", "json"]).json().len(), 1);
}

async fn every_batch_is_gone_through(place: Place) {
    for number in 0..7 {
        place.expired(&format!("k-{number}")).await;
    }
    assert_eq!(place.of_realm(&["prune", "--batch", "2"]).ok(), "removed 7 expired records\n");
}

/// The first version removed the expired records, and then failed and said to run it again.
async fn erasing_is_refused_before_anything_is_removed_unless_the_store_is_sqlite(place: Place) {
    place.expired("k-1").await;
    let ran = place.of_realm(&["prune", "--erase"]);
    if place.url.starts_with("sqlite:") {
        assert_eq!(ran.ok(), "removed 1 expired record\n");
        return;
    }
    let why = ran.refused(2);
    assert!(why.contains("--erase is for SQLite") && !why.contains("again"), "{why}");
    assert_eq!(place.of_realm(&["prune"]).ok(), "removed 1 expired record\n");
}

#[test]
fn erasing_memory_is_refused() {
    let why = semel(&["prune", "--store", "memory:", "--erase"]).refused(2);
    assert!(why.contains("--erase is for SQLite"), "{why}");
}

#[test]
fn a_batch_has_limits() {
    for batch in ["0", "10001", "all"] {
        semel(&["prune", "--store", "memory:", "--batch", batch]).refused(2);
    }
    assert_eq!(semel(&["prune", "--store", "memory:"]).ok(), "removed 0 expired records\n");
}
