//! `semel bench`.

use crate::place::{Place, file, on_every_store};
use crate::process::semel;

on_every_store!(a_store_is_measured_and_left_as_it_was);

const SHORT: [&str; 5] = ["bench", "--seconds", "1", "--callers", "8"];

async fn a_store_is_measured_and_left_as_it_was(place: Place) {
    place.done("k").await;
    let before = place.of_realm(&["list"]).ok();
    let figures = place.semel(&[&SHORT[..], &["--yes", "--output", "json"]].concat()).json();
    let loads: Vec<&str> = figures.iter().map(|figure| figure["load"].as_str().unwrap()).collect();
    assert_eq!(loads, ["new", "replay", "mixed"]);
    for figure in &figures {
        let number = |name: &str| figure[name].as_f64().unwrap_or_else(|| panic!("{name}: {figure}"));
        assert!(number("operations") > 0.0 && number("per_second") > 0.0, "{figure}");
        assert!(number("p50_ms") <= number("p90_ms") && number("p99_ms") <= number("max_ms"), "{figure}");
        assert_eq!(
            figure["wal_bytes_per_operation"].is_number(),
            place.url.starts_with("postgres"),
            "{figure}"
        );
    }
    if place.url.starts_with("postgres") {
        let wal = |load: usize| figures[load]["wal_bytes_per_operation"].as_f64().unwrap();
        assert!(wal(0) > 200.0, "a new key is written: {}", wal(0));
    }
    let left = place.semel(&["list", "--realm", "semel-bench", "--expired", "false", "--output", "json"]);
    if !place.is_shared {
        assert_eq!(left.json(), Vec::<serde_json::Value>::new());
        assert_eq!(place.semel(&["stats", "--output", "json"]).json()[0]["done"], 1);
    }
    assert_eq!(place.of_realm(&["list"]).ok().lines().count(), before.lines().count());
}

#[tokio::test]
async fn a_store_of_others_needs_a_yes() {
    for place in [Place::postgres().await, Place::redis().await] {
        let said = place.semel(&SHORT).refused(2);
        assert!(said.contains("in the realm semel-bench") && said.contains("say --yes"), "{said}");
        assert!(place.store.stats().await.is_ok());
    }
    let said = semel(&["bench", "--store", "postgres://ann:secret@db/app"]).refused(2);
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn figures_stand_in_a_table() {
    let (url, _folder) = file();
    for url in ["memory:", &url] {
        let ran = semel(&[&SHORT[..], &["--load", "replay", "--body", "1KiB", "--store", url]].concat());
        assert_eq!(ran.err, "", "progress is for terminals");
        let said = ran.ok();
        assert!(said.contains("8 callers on ") && said.contains("bodies of 1KiB"), "{said}");
        assert!(said.contains("PER SECOND") && said.contains("\nreplay  "), "{said}");
        assert_eq!(said.lines().count(), 4, "{said}");
    }
}

#[test]
fn a_load_has_limits() {
    for wrong in [
        &["--callers", "0"][..],
        &["--seconds", "0"],
        &["--load", "heavy"],
        &["--body", "much"],
        &["--body", "17MiB"],
    ] {
        let ran = semel(&[&["bench", "--store", "memory:"], wrong].concat());
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
    }
}
