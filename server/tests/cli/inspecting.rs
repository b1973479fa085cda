//! `semel inspect`.

use std::process::Command;

use semel::{AfterCrash, Outcome};
use serde_json::Value;
use testkit::on_every_store;

use crate::place::Place;
use crate::process::{end, semel};
use crate::records::outcome;

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        a_done_record_is_shown_with_its_outcome,
        a_held_record_is_shown_with_what_can_be_done,
        a_lost_record_is_shown_as_one_that_needs_no_operator,
        the_commands_that_are_shown_work,
        running_released_and_expired_records_are_told_apart,
        json_has_the_words_of_the_record,
        the_token_is_never_shown,
        a_body_that_is_no_text_is_not_printed,
        a_body_that_was_not_recorded_is_told_from_an_empty_one,
        a_key_in_two_scopes_needs_one_of_them,
        an_unknown_key_is_missing,
    }
}

async fn a_done_record_is_shown_with_its_outcome(place: Place) {
    let lease = place.done("k").await;
    let page = place.of_realm(&["inspect", "k"]).ok();
    for part in [
        "key            k\n",
        &format!("realm          {}\n", place.realm),
        "principal      none\n",
        "state          done\n",
        "  operation    POST /charges\n",
        "  resource     charges/7\n",
        " (version 1)\n",
        " ago  created\n",
        &format!(" ago  attempt 1 granted to host-1, fence {}\n", lease.fence()),
        " ago  outcome recorded",
        "in 23h  retention ends\n",
        "  status       201\n",
        "  subtype      created\n",
        "  header       content-type: application/json\n",
        "  header       x-trace: a\u{fffd}b\n",
        "  body         10 bytes; --body shows it\n",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    assert!(!page.contains("what can be done") && !page.contains("{\"id\""), "{page}");
    let page = place.of_realm(&["inspect", "k", "--body"]).ok();
    assert!(page.ends_with("  body         10 bytes\n    {\"id\":\n     7}\n"), "{page}");
}

async fn a_held_record_is_shown_with_what_can_be_done(place: Place) {
    let lease = place.held("k").await;
    let page = place.of_realm(&["inspect", "k"]).ok();
    let flags = format!("--realm {} --principal '' --fence {}", place.realm, lease.fence());
    for part in [
        "state          held: the lease is over, and it is not known what happened\n",
        " ago  attempt 1 last heard of\n",
        " ago  the lease was over\n",
        " ago  note: abandoned: the connection was lost\n",
        &format!("    semel resolve k {flags} "),
        &format!("    semel reset k {flags} "),
        &format!("    semel forget k {flags} "),
        // The cache has to learn of a reset or forgotten key.
        &place.cache.as_ref().map(|url| format!(" --cache {url} ")).unwrap_or_default(),
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    assert!(!page.contains("\noutcome\n"), "{page}");
}

async fn a_lost_record_is_shown_as_one_that_needs_no_operator(place: Place) {
    for (policy, why) in [
        (AfterCrash::Retry, "the route says that its work may run again"),
        (AfterCrash::Transactional, "the transaction of the lost attempt was rolled back with its effect"),
    ] {
        let key = policy.as_str();
        place.new_key(key).under(policy).held("the connection was lost").await;
        let page = place.of_realm(&["inspect", key]).ok();
        assert!(page.contains("lost: the lease is over, and the next attempt takes over\n"), "{page}");
        assert!(page.contains(&format!("nothing has to be done: {why}, and the next request")), "{page}");
        // Recording an outcome would claim a payment that was never made.
        assert!(!page.contains("semel resolve") && page.contains(&format!("semel forget {key} ")), "{page}");
    }
}

async fn the_commands_that_are_shown_work(place: Place) {
    for (key, verb, state) in [
        ("it's; a \"key\" $HOME", "resolve", "done"),
        ("-k", "reset", "released"),
        ("--all", "forget", "released"),
    ] {
        let principal = "o'neil \u{202e}";
        place.new_key(key).of_principal(principal).held("lost").await;
        let scope = ["--principal", principal, "--", key];
        let inspect = |more: &[&str]| {
            let args = place.args(&[&["inspect", "--realm", &place.realm], more].concat());
            semel(&[&*args, &scope].concat())
        };
        let page = inspect(&[]).ok();
        let shown = page.lines().find_map(|line| line.trim().strip_prefix(&format!("semel {verb} ")));
        let shown = shown.unwrap_or_else(|| panic!("no {verb} in {page}"));
        // A login is not shown, and the URL of a test server has one.
        let mut shell = Command::new("bash");
        // The text works in any locale, because its escapes stand for bytes.
        shell
            .env("LC_ALL", "C")
            .env("SEMEL_STORE", &place.url)
            .args(["-c", &format!("\"$0\" {verb} {shown}")]);
        shell.arg(env!("CARGO_BIN_EXE_semel"));
        end(shell).ok();
        let record = &inspect(&["--output", "json"]).json()[0];
        assert_eq!(record["state"], state, "{record}");
    }
}

async fn running_released_and_expired_records_are_told_apart(place: Place) {
    place.running("k-running").await;
    place.released("k-released").await;
    place.expired("k-expired").await;
    let running = place.of_realm(&["inspect", "k-running"]).ok();
    assert!(running.contains("state          running\n"), "{running}");
    assert!(running.contains("s  the lease is over, unless it is renewed\n"), "{running}");
    let released = place.of_realm(&["inspect", "k-released"]).ok();
    assert!(released.contains("state          released: the key can be claimed again\n"), "{released}");
    let expired = place.of_realm(&["inspect", "k-expired"]).ok();
    assert!(expired.contains("expired        its retention is over"), "{expired}");
    assert!(expired.contains(" ago  retention ended\n"), "{expired}");
}

async fn json_has_the_words_of_the_record(place: Place) {
    let lease = place.done("k").await;
    place.held("k-held").await;
    let words = [
        "key",
        "realm",
        "principal",
        "state",
        "operation",
        "resource",
        "fingerprint",
        "fingerprint_version",
        "version",
        "fence",
        "attempt",
        "owner",
        "lease_until",
        "heartbeat_at",
        "created_at",
        "updated_at",
        "after_crash",
        "retention_seconds",
        "expires_at",
        "expired",
        "finished_at",
        "note",
        "status",
        "subtype",
        "headers",
        "body_bytes",
    ];
    for key in ["k", "k-held"] {
        let record = &place.of_realm(&["inspect", key, "--output", "json"]).json()[0];
        let found: Vec<&String> = record.as_object().unwrap().keys().collect();
        let mut expected = words.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
    let record = &place.of_realm(&["inspect", "k", "--body", "--output", "json"]).json()[0];
    assert_eq!(record["fence"], lease.fence().get());
    assert_eq!(record["fingerprint"].as_str().unwrap().len(), 64);
    assert_eq!((&record["status"], &record["subtype"]), (&201.into(), &"created".into()));
    assert_eq!(record["headers"][0], serde_json::json!(["content-type", "application/json"]));
    assert_eq!((&record["body_bytes"], &record["body"]), (&10.into(), &"{\"id\":\n 7}".into()));
    assert_eq!(record["note"], Value::Null);
    let held = &place.of_realm(&["inspect", "k-held", "--body", "--output", "json"]).json()[0];
    assert_eq!((&held["status"], &held["body_bytes"], held.get("body")), (&Value::Null, &Value::Null, None));
}

async fn the_token_is_never_shown(place: Place) {
    for (key, lease) in [("k-held", place.held("k-held").await), ("k-done", place.done("k-done").await)] {
        for command in [
            &["list"][..],
            &["list", "--output", "json"],
            &["stale"],
            &["inspect", key, "--body"],
            &["inspect", key, "--body", "--output", "json"],
        ] {
            let said = place.of_realm(command).ok();
            assert!(!said.contains(&lease.token().to_string()), "{said}");
        }
    }
}

async fn a_body_that_is_no_text_is_not_printed(place: Place) {
    let binary = |bytes: &'static [u8]| Outcome::new(200).unwrap().with_body(bytes).unwrap();
    place.new_key("nul").done(&binary(b"a\0\x01\xff")).await;
    place.new_key("escape").done(&binary(b"\x1b[2J")).await;
    for (key, size, base64) in [("nul", 4, "YQAB/w=="), ("escape", 4, "G1sySg==")] {
        let page = place.of_realm(&["inspect", key, "--body"]).ok();
        assert!(page.ends_with(&format!("  body         {size} bytes, binary\n")), "{page:?}");
        let record = &place.of_realm(&["inspect", key, "--body", "--output", "json"]).json()[0];
        assert_eq!((&record["body_base64"], record.get("body")), (&base64.into(), None));
    }
}

async fn a_body_that_was_not_recorded_is_told_from_an_empty_one(place: Place) {
    place.new_key("omitted").done(&outcome().without_body()).await;
    place.new_key("empty").done(&Outcome::new(204).unwrap()).await;
    let of = |key: &str| place.of_realm(&["inspect", key]).ok();
    assert!(
        of("omitted").ends_with("  body         not recorded: it was too large, or streamed\n"),
        "{}",
        of("omitted")
    );
    assert!(of("empty").ends_with("  body         0 bytes\n"), "{}", of("empty"));
    let json =
        |key: &str| place.of_realm(&["inspect", key, "--output", "json"]).json()[0]["body_bytes"].clone();
    assert_eq!((json("omitted"), json("empty")), (Value::Null, 0.into()));
}

async fn a_key_in_two_scopes_needs_one_of_them(place: Place) {
    place.new_key("k").of_principal("ann").claimed().await;
    place.new_key("k").of_principal("b o'b").held("lost").await;
    for command in [&["inspect", "k"][..], &["reset", "k", "--fence", "1", "--reason", "r"]] {
        let said = place.of_realm(command).refused(5);
        assert!(said.contains("the key k is in 2 scopes"), "{said}");
        assert!(said.contains(&format!("\n  --realm {} --principal ann\n", place.realm)), "{said}");
        assert!(said.contains(&format!("\n  --realm {} --principal 'b o'\\''b'\n", place.realm)), "{said}");
    }
    let page = place.of_realm(&["inspect", "k", "--principal", "ann"]).ok();
    assert!(page.contains("principal      ann\n"), "{page}");
}

async fn an_unknown_key_is_missing(place: Place) {
    for command in [
        &["inspect", "nobody"][..],
        &["inspect", "nobody", "--principal", ""],
        &["inspect", "nobody", "--output", "json"],
    ] {
        let ran = place.of_realm(command);
        assert_eq!(ran.out, "");
        let said = ran.refused(3);
        assert!(said.contains("there is no record of the key nobody"), "{said}");
    }
}

#[test]
fn a_text_that_cannot_be_a_key_is_a_wrong_argument() {
    for wrong in
        [&["inspect", ""][..], &["inspect", "a\u{1b}b"], &["inspect", "k", "--realm", ""], &["inspect"]]
    {
        let said = semel(&[wrong, &["--store", "memory:"]].concat()).refused(2);
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}
