//! `semel list` and `semel stale`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use futures_util::future::join_all;
use serde_json::Value;
use testkit::on_every_store;

use crate::place::Place;
use crate::process::{Ran, command, objects, semel};

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        every_state_is_listed,
        filters_leave_others_out,
        a_page_says_where_the_next_begins,
        all_pages_are_walked,
        a_foreign_cursor_is_refused,
        held_records_are_listed_with_their_notes,
        held_is_told_from_lost,
        silent_owners_are_found_by_the_last_heartbeat,
        control_characters_are_escaped,
        a_reader_that_had_enough_is_no_failure,
    }
}

async fn five_states(place: &Place) {
    place.running("k-running").await;
    place.held("k-held").await;
    place.done("k-done").await;
    place.released("k-released").await;
    place.expired("k-expired").await;
}

fn names(objects: &[Value], name: &str) -> BTreeSet<String> {
    objects.iter().map(|object| object[name].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn keys(ran: Ran) -> BTreeSet<String> {
    names(&ran.json(), "key")
}

fn set<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
    words.map(str::to_owned).into()
}

async fn every_state_is_listed(place: Place) {
    five_states(&place).await;
    let shown = place.of_realm(&["list"]).ok();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 6, "{shown}");
    let header: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(
        header,
        ["KEY", "REALM", "PRINCIPAL", "STATE", "OPERATION", "ATTEMPT", "FENCE", "AGE", "OWNER"]
    );
    for (key, state) in [
        ("k-running", " running "),
        ("k-held", " held "),
        ("k-done", " done "),
        ("k-released", " released "),
        ("k-expired", " done, expired "),
    ] {
        let line =
            lines.iter().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {shown}"));
        assert!(line.contains(state) && line.contains("POST /charges") && line.contains("host-1"), "{line}");
    }
    let objects = place.of_realm(&["list", "--output", "json"]).json();
    assert_eq!(names(&objects, "key"), set(["k-running", "k-held", "k-done", "k-released", "k-expired"]));
    assert_eq!(names(&objects, "state"), set(["running", "held", "done", "released"]));
    let done = objects.iter().find(|object| object["key"] == "k-done").unwrap();
    assert!(done["fence"].is_u64() && done["attempt"] == 1 && done["expired"] == false, "{done}");
    assert!(done["created_at"].as_str().unwrap().ends_with('Z'), "{done}");
}

async fn filters_leave_others_out(place: Place) {
    five_states(&place).await;
    let digest = "0123456789abcdef".repeat(4);
    place.new_key("k-digest").of_principal(&digest).to("other").claimed().await;
    let with = |more: &[&str]| keys(place.of_realm(&[&["list", "--output", "json"], more].concat()));
    for (state, key) in [("held", "k-held"), ("released", "k-released")] {
        assert_eq!(with(&["--state", state]), set([key]));
    }
    assert_eq!(with(&["--state", "done", "--expired", "false"]), set(["k-done"]));
    assert_eq!(with(&["--expired", "true"]), set(["k-expired"]));
    assert_eq!(with(&["--principal", &digest]), set(["k-digest"]));
    assert_eq!(with(&["--operation", "other"]), set(["k-digest"]));
    assert_eq!(with(&["--key", "k-held"]), set(["k-held"]));
    assert_eq!(with(&["--key", "k-held", "--principal", ""]), set(["k-held"]));
    assert_eq!(with(&["--older-than", "10m"]), set([]));
    assert_eq!(with(&["--older-than", "0s"]).len(), 6);
    // People get the first digits of a digest, programs all of its digits.
    let shown = place.of_realm(&["list"]).ok();
    assert!(shown.contains(" 0123456789ab… ") && !shown.contains(&digest), "{shown}");
    let objects = place.of_realm(&["list", "--operation", "other", "--output", "json"]).json();
    assert_eq!(objects[0]["principal"], digest);
    assert_eq!(place.of_realm(&["list", "--older-than", "10m"]).ok(), "no records\n");
    assert_eq!(place.of_realm(&["list", "--older-than", "10m", "--output", "json"]).ok(), "");
}

async fn a_page_says_where_the_next_begins(place: Place) {
    five_states(&place).await;
    let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let after = cursor.as_deref().map_or(Vec::new(), |cursor| vec!["--after", cursor]);
        let page = place.of_realm(&[&["list", "--limit", "2"], &*after].concat()).ok();
        let mut lines: Vec<&str> = page.lines().filter(|line| *line != "no records").collect();
        cursor =
            lines.last().and_then(|line| line.strip_prefix("there may be more: --after ")).map(str::to_owned);
        if cursor.is_some() {
            lines.pop();
        }
        let listed: Vec<&str> = lines.into_iter().skip(1).collect();
        assert!(listed.len() <= 2, "{page}");
        seen.extend(listed.iter().map(|line| line.split(' ').next().unwrap().to_owned()));
        pages += 1;
        if cursor.is_none() {
            break;
        }
    }
    assert!(pages >= 3, "{pages} pages");
    assert_eq!(seen.len(), 5);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 5);
    // Beside JSON the cursor is a remark, because every line is a record.
    let ran = place.of_realm(&["list", "--limit", "2", "--output", "json"]);
    assert!(ran.err.starts_with("there may be more: --after "), "{ran:?}");
    assert_eq!(objects(&ran.out).len(), 2);
}

async fn all_pages_are_walked(place: Place) {
    let made = (0..1_000).map(|number| {
        let place = &place;
        async move { place.done(&format!("many-{number}")).await }
    });
    join_all(made).await;
    let all = place.of_realm(&["list", "--all", "--limit", "64", "--output", "json"]);
    assert_eq!(all.err, "");
    let objects = all.json();
    assert_eq!(objects.len(), 1_000);
    assert_eq!(names(&objects, "key").len(), 1_000);
    let table = place.of_realm(&["list", "--all", "--limit", "64"]).ok();
    assert_eq!(table.lines().count(), 1_001, "one header, and a line for each record");
    assert_eq!(table.lines().filter(|line| line.starts_with("KEY")).count(), 1);
}

async fn a_foreign_cursor_is_refused(place: Place) {
    place.done("k").await;
    let said = place.of_realm(&["list", "--after", "somewhere"]).refused(1);
    assert!(said.contains("the cursor is not from this store"), "{said}");
}

async fn held_records_are_listed_with_their_notes(place: Place) {
    five_states(&place).await;
    let shown = place.of_realm(&["stale"]).ok();
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(
        shown.starts_with("KEY ") && shown.contains(" OVER FOR ") && shown.contains("\nk-held "),
        "{shown}"
    );
    assert!(shown.trim_end().ends_with("abandoned: the connection was lost"), "{shown}");
    let objects = place.of_realm(&["stale", "--output", "json"]).json();
    assert_eq!(
        (objects.len(), &objects[0]["key"], &objects[0]["state"]),
        (1, &"k-held".into(), &"held".into())
    );
    assert!(objects[0]["note"]["text"].as_str().unwrap().contains("the connection was lost"));
    assert!(objects[0]["note"]["at"].is_string());
}

async fn held_is_told_from_lost(place: Place) {
    place.held("k-held").await;
    place.lost("k-lost").await;
    let objects = place.of_realm(&["stale", "--output", "json"]).json();
    let mut states: Vec<_> =
        objects.iter().map(|object| (object["key"].as_str(), object["state"].as_str())).collect();
    states.sort_unstable();
    assert_eq!(states, [(Some("k-held"), Some("held")), (Some("k-lost"), Some("lost"))]);
    for state in ["held", "lost"] {
        let shown = keys(place.of_realm(&["list", "--state", state, "--output", "json"]));
        assert_eq!(shown, set([&format!("k-{state}")]));
    }
}

async fn silent_owners_are_found_by_the_last_heartbeat(place: Place) {
    place.held("k-1").await;
    let stale =
        |silence: &str| keys(place.of_realm(&["stale", "--unheard-for", silence, "--output", "json"]));
    assert!(stale("1h").is_empty());
    while stale("1s").is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // On a busy machine, the command may take longer than that.
    for number in 2.. {
        let heard = format!("k-{number}");
        place.held(&heard).await;
        let told = stale("1s");
        assert!(told.contains("k-1"), "{told:?}");
        if !told.contains(&heard) {
            return;
        }
        assert!(number < 20, "{heard} was heard of");
    }
}

async fn control_characters_are_escaped(place: Place) {
    let (operation, owner, note) = ("POST /\u{202e}segrahc", "host\u{1b}[2J\u{200b}", "lost\u{7}\u{2066}x");
    place.new_key("k").of_principal("p\u{202e}").to(operation).by(owner).held(note).await;
    for command in [
        &["list"][..],
        &["stale"],
        &["inspect", "k"],
        &["list", "--output", "json"],
        &["inspect", "k", "--output", "json"],
        &["reset", "k", "--fence", "1", "--reason", "r"],
        &["reset", "k", "--fence", "1", "--reason", "r", "--output", "json"],
    ] {
        let ran = place.of_realm(command);
        let said = format!("{}{}", ran.out, ran.err);
        for raw in ["\u{202e}", "\u{1b}", "\u{7}", "\u{200b}", "\u{2066}"] {
            assert!(!said.contains(raw), "{command:?}: {said:?}");
        }
    }
    assert!(place.of_realm(&["list"]).ok().contains("POST /\\u{202e}segrahc"));
    // For a program, the text is the same as before.
    let objects = place.of_realm(&["list", "--output", "json"]).json();
    assert_eq!(
        (&objects[0]["operation"], &objects[0]["principal"]),
        (&operation.into(), &"p\u{202e}".into())
    );
}

async fn a_reader_that_had_enough_is_no_failure(place: Place) {
    let made = (0..300).map(|number| {
        let place = &place;
        async move { place.done(&format!("{}-{number}", "long".repeat(50))).await }
    });
    join_all(made).await;
    let args = place.args(&["list", "--all", "--limit", "10", "--output", "json", "--realm", &place.realm]);
    let mut child = command(&args).spawn().unwrap();
    let mut first = String::new();
    // The reader is dropped with its pipe, after reading one line.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(first.starts_with('{'), "{first}");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn a_store_of_nothing_is_listed() {
    for command in ["list", "stale"] {
        assert_eq!(semel(&[command, "--store", "memory:"]).ok(), "no records\n");
        assert_eq!(
            semel(&[command, "--store", "memory:", "--cache", "memory:1MiB", "--output", "json"]).ok(),
            ""
        );
    }
}

#[test]
fn wrong_filters_are_wrong_arguments() {
    for wrong in [
        &["--state", "stale"][..],
        &["--limit", "0"],
        &["--limit", "many"],
        &["--older-than", "10"],
        &["--expired", "perhaps"],
        &["--realm", ""],
        &["--key", "a\tb"],
        &["--output", "yaml"],
    ] {
        semel(&[&["list", "--store", "memory:"], wrong].concat()).refused(2);
    }
}
