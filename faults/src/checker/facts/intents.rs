//! Tests of status 422.

use super::case::Gets::{Nothing, Outcome, Pending, Reused};
use super::case::{hold, retry, transactional};
use crate::checker::Kind::{FalseMismatch, MismatchMissed};

#[test]
fn another_request_is_a_mismatch() {
    for case in [hold, retry, transactional] {
        let told = || case().works("a", 10).told("a");
        told().probes(1, 20..30, Reused).passes();
        told().probes(1, 20..30, Outcome("a")).finds(&[MismatchMissed]);
    }
}

#[test]
fn a_mismatch_wins_over_a_conflict() {
    let probed = || hold().works("a", 10).told("a").probes(1, 5..30, Nothing);
    probed().asks(11..12, Pending).passes();
    probed().probes(1, 11..12, Pending).finds(&[MismatchMissed]);
}

#[test]
fn the_only_request_is_no_mismatch() {
    let told = || hold().works("a", 10).told("a");
    told().asks(0..30, Reused).finds(&[FalseMismatch]);
    // The other request was sent only later.
    told().asks(0..30, Reused).probes(1, 31..40, Nothing).finds(&[FalseMismatch]);
}

#[test]
fn the_request_that_has_the_key_is_no_mismatch() {
    let probed = || retry().works("a", 10).told("a").probes(1, 0..30, Nothing);
    probed().passes();
    probed().asks(0..30, Reused).finds(&[FalseMismatch]);
    // The first intent ran and was lost without an answer; the key still belongs to it.
    let held = || hold().starts("a", 10).asks(0..20, Nothing).probes(1, 0..30, Reused);
    held().finally(0..10, super::case::Gets::Unknown).passes();
    held().finally(0..10, Reused).finds(&[FalseMismatch]);
    // The first intent was released, and the key still belongs to it.
    let released =
        || retry().starts("a", 10).releases("a", 20).works("b", 40).told("b").probes(1, 0..30, Reused);
    released().passes();
    released().asks(25..30, Reused).finds(&[FalseMismatch]);
}

#[test]
fn a_probe_may_be_first() {
    for case in [hold, retry, transactional] {
        let probe = || case().works("p", 10).with_intent(1);
        probe().probes(1, 0..20, Outcome("p")).asks(5..30, Reused).finally(0..10, Reused).passes();
        // It is unknown whether the first request completed: its answer is lost, and the key still
        // belongs to it.
        probe().probes(1, 0..20, Nothing).asks(5..30, Reused).finally(0..10, Reused).passes();
        case().probes(1, 0..20, Nothing).asks(5..30, Reused).finally(0..10, Reused).passes();
        probe().probes(1, 0..20, Outcome("p")).finally(0..10, Outcome("p")).finds(&[MismatchMissed]);
    }
}

#[test]
fn not_all_requests_are_mismatches() {
    let refused = || hold().probes(1, 0..20, Reused).asks(5..30, Reused).finally(0..10, Reused);
    refused().finds(&[FalseMismatch]);
    refused().probes(2, 0..20, Nothing).passes();
    refused().probes(2, 20_000..20_001, Nothing).finds(&[FalseMismatch]);
}

#[test]
fn a_forgotten_grant_leaves_the_key_to_another_request() {
    let forgot = || {
        let probe =
            transactional().starts("p", 10).with_intent(1).probes(1, 0..20, Nothing).asks(5..30, Reused);
        probe.works("a", 40).with_attempt(1).told("a")
    };
    forgot().with(|case| case.terms.forgets = true).passes();
    // An outcome that a client received is committed, and never forgotten.
    let reused = forgot().finally(20..30, Reused);
    reused.with(|case| case.terms.forgets = true).finds(&[FalseMismatch]);
    let alone = transactional().works("a", 10).told("a").asks(0..30, Reused);
    alone.with(|case| case.terms.forgets = true).finds(&[FalseMismatch]);
}
