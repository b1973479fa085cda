//! The demo, which tells its story and names its limits.

use std::process::{Command, Output};

fn semel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_semel")).args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_charges_every_payment_once() {
    let output = semel(&["demo", "--exit"]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    for part in [
        "201: receipt 1, from the record",
        "422: idempotency_key_reused",
        "32 times: 201: receipt 2",
        "502: upstream_lost",
        "409: idempotency_outcome_unknown",
        "201: receipt 3, from the record",
        "38 requests, 3 payments, 3 charges.",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_wrong_command_is_named_with_the_one_that_was_meant() {
    let output = semel(&["dmo"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("'dmo'") && said.contains("'demo'"), "{said}");
}

#[test]
fn help_says_what_there_is() {
    let output = semel(&["--help"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("demo"));
}
