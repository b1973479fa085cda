//! The runs of tests, and the servers around them.

use std::ffi::OsString;

use anyhow::Result;
use testkit::progress::say;
use testkit::servers::{SMALL_DISK, Servers, small_disk_is_left_out};

use crate::failures::Failures;
use crate::step::{Steps, all_of, cargo, cargo_has};

/// Runs all tests, then the doc tests, with servers around them.
pub fn all(steps: &mut Steps, args: &[OsString]) -> Result<()> {
    let servers = steps.time("servers", Servers::start)?;
    let outcome = with(steps, &servers, args);
    let stopped = servers.stop();
    if let (Err(_), Err(error)) = (&outcome, &stopped) {
        // The failed test is the result of the run; a server that died is probably its cause.
        say(format_args!("{error:#}"));
    }
    outcome.and(stopped)
}

fn with(steps: &mut Steps, servers: &Servers, args: &[OsString]) -> Result<()> {
    let mut failures = Failures::default();
    let mut run = if cargo_has("nextest") {
        cargo(["nextest", "run"])
    } else {
        cargo(["test", "--lib", "--bins", "--tests", "--examples"])
    };
    run.args(["--workspace", "--exclude", "bench", "--all-features", "--no-fail-fast"]).args(args);
    let tests = steps.hear("tests", run.envs(servers.urls()), |line| failures.hear(line));

    let doc_tests = if args.is_empty() {
        // The packages are the same as above, so that nothing is built with other features a second
        // time.
        let mut run =
            cargo(["test", "--doc", "--workspace", "--exclude", "bench", "--all-features", "--no-fail-fast"]);
        steps.hear("doc tests", run.envs(servers.urls()), |line| failures.hear(line))
    } else {
        say("doc tests: left out, as there are arguments");
        Ok(())
    };

    if small_disk_is_left_out() {
        say(format_args!("LEFT OUT by {SMALL_DISK}: the tests that fill a disk pass without running"));
    }
    let names = failures.names();
    if !names.is_empty() {
        say(format_args!("failed tests: {}", names.len()));
        names.iter().for_each(|name| say(format_args!("    {name}")));
    }
    all_of([tests, doc_tests])
}

/// Searches every configuration of the model, optimised.
pub fn model(steps: &mut Steps, filter: Option<OsString>) -> Result<()> {
    let mut search = cargo(["test", "--release", "--package", "semel", "--all-features", "--test", "model"]);
    search.args(["--", "--nocapture"]).args(filter).env("SEMEL_MODEL", "all");
    steps.run("model", &mut search)
}
