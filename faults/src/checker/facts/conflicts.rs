//! Tests of status 409.

use super::case::Gets::{Nothing, Outcome, Pending, Unknown};
use super::case::{hold, retry, transactional};
use crate::checker::Kind::{FalseConflict, MismatchMissed};

#[test]
fn there_is_no_conflict_once_the_outcome_was_told() {
    for (case, gets) in
        [(hold as fn() -> _, Pending), (hold, Unknown), (retry, Pending), (transactional, Pending)]
    {
        let told = || case().works("a", 10).told("a");
        // The client received the outcome at 5,000.
        told().asks(5_000..5_001, gets).passes();
        told().asks(5_001..5_002, gets).finds(&[FalseConflict]);
    }
}

#[test]
fn a_conflict_after_healing_is_false_once_the_outcome_was_told() {
    hold().works("a", 10).asks(0..50, Outcome("a")).finally(0..10, Unknown).finds(&[FalseConflict]);
}

#[test]
fn a_conflict_is_with_another_request() {
    for gets in [Pending, Unknown] {
        let alone = || hold().finally(0..10, gets).finally(20..30, Unknown);
        alone().asks(5..9_000, Nothing).passes();
        alone().finds(&[FalseConflict]);
    }
}

#[test]
fn the_other_request_may_have_been_sent_later_and_come_first() {
    let second = |sent_at| {
        let told = retry().works("a", 10).finally(0..10, Outcome("a"));
        told.asks(0..20, Pending).asks(sent_at..30, Outcome("a"))
    };
    second(20).passes();
    second(21).finds(&[FalseConflict]);
}

#[test]
fn the_other_request_asked_for_the_same() {
    let probed = || retry().works("a", 100).told("a").with(|case| case.history.requests[0].sent_at = 50_000);
    probed().probes(1, 0..40, Nothing).asks(4..40, Nothing).asks(5..40, Pending).passes();
    probed().probes(1, 0..40, Nothing).asks(5..40, Pending).finds(&[FalseConflict]);
}

#[test]
fn a_conflict_after_the_outcome_is_no_missed_mismatch_as_well() {
    let told = || hold().works("a", 10).told("a").probes(1, 20..30, Nothing);
    told().probes(1, 6_000..6_001, Pending).finds(&[FalseConflict]);
    told().probes(1, 40..50, Pending).finds(&[MismatchMissed]);
}

/// The request lost its own key when the database was killed.
#[test]
fn a_forgotten_grant_may_be_a_conflict_without_a_counterpart() {
    let lone = || transactional().starts("a", 10).asks(0..50, Pending).works("b", 10_005).told_after("b");
    lone().with(|case| case.terms.forgets = true).passes();
    lone().finds(&[FalseConflict]);
}

impl super::case::Case {
    fn told_after(self, run: &'static str) -> Self {
        self.finally(0..10, Outcome(run))
    }
}
