//! Tests of the time after healing.

use super::case::Gets::{Nothing, Outcome, Pending, Refused, Reused, Unavailable, Unknown};
use super::case::{LEASE, SETTLE, hold, retry, transactional};
use crate::checker::Kind::{OutcomeLost, Unasked, Unsettled};

#[test]
fn an_outcome_is_kept() {
    for case in [hold, retry, transactional] {
        let told = || case().works("a", 10).asks(0..50, Outcome("a"));
        told().finally(0..10, Outcome("a")).passes();
        for gets in [Nothing, Unavailable, Refused(502, "upstream_unreachable")] {
            told().finally(0..10, gets).finds(&[OutcomeLost]);
            told().finally(0..10, gets).finally(10..20, Outcome("a")).passes();
            told().finally(0..10, Outcome("a")).finally(20..30, gets).finds(&[OutcomeLost]);
        }
    }
}

#[test]
fn an_outcome_that_came_while_it_was_asked_for_is_asked_for_again() {
    let slow = || hold().works("a", 10).asks(0..11_000, Outcome("a")).finally(0..10, Unknown);
    slow().finds(&[Unasked]);
    slow().finally(1_001..1_002, Outcome("a")).passes();
}

#[test]
fn every_key_is_asked_for() {
    hold().works("a", 10).asks(0..50, Outcome("a")).finds(&[Unasked]);
    hold().asks(0..50, Nothing).finds(&[Unasked]);
    hold().works("a", 10).asks(0..50, Outcome("a")).finally(0..1, Outcome("a")).passes();
}

#[test]
fn an_outcome_that_expires_is_not_asked_for_again() {
    let expires = || {
        let mut case = hold();
        case.terms.expires = true;
        case
    };
    expires().works("a", 10).asks(0..50, Outcome("a")).passes();
    // A client without an answer has to repeat its request, however long ago it was sent.
    expires().works("a", 10).asks(0..50, Nothing).finds(&[Unasked]);
}

#[test]
fn what_was_lost_is_taken_over_a_lease_after_healing() {
    for case in [retry, transactional] {
        let last = LEASE + SETTLE;
        let lost = || case().starts("a", 9_900).works("b", 10_900).asks(9_800..9_950, Nothing);
        let pending = || lost().finally(0..10, Pending);
        pending().finally(last - 10..last, Outcome("b")).passes();
        pending().finally(last - 10..last + 1, Outcome("b")).finds(&[Unsettled]);
        pending().finds(&[Unsettled]);
        pending().finally(last - 10..last, Unavailable).finds(&[Unsettled]);
        // Held is no answer where the next attempt takes over.
        pending().finally(last - 10..last, Unknown).finds(&[Unsettled]);
    }
}

#[test]
fn a_late_request_gets_a_late_answer() {
    let asked = LEASE + 5_000;
    let told = |ended| retry().works("a", 9_000).asks(0..10, Nothing).finally(asked..ended, Outcome("a"));
    told(asked + SETTLE).passes();
    told(asked + SETTLE + 1).finds(&[Unsettled]);
}

#[test]
fn under_hold_a_key_ends_with_its_outcome_or_held() {
    let lost = || hold().starts("a", 9_900).asks(9_800..9_950, Nothing).finally(0..10, Pending);
    lost().finally(5_000..5_001, Unknown).passes();
    for gets in [Pending, Unavailable, Nothing] {
        lost().finally(5_000..5_001, gets).finds(&[Unsettled]);
        lost().finally(20..30, Unknown).finally(5_000..5_001, gets).finds(&[Unsettled]);
    }
    lost().finds(&[Unsettled]);
    // The owner may still complete after its lease.
    lost().effect("a").finally(20..30, Unknown).finally(5_000..5_001, Outcome("a")).passes();
}

#[test]
fn a_key_of_another_intent_is_settled() {
    for case in [hold, retry, transactional] {
        let probed = || case().works("p", 10).with_intent(1).probes(1, 0..50, Outcome("p"));
        probed().finally(0..10, Reused).passes();
        probed().finally(0..10, Unavailable).finds(&[Unsettled]);
        probed().finally(0..10, Unavailable).finally(20..30, Reused).passes();
    }
    let late = LEASE + SETTLE;
    let pending = || retry().probes(1, 0..50, Nothing).finally(0..10, Unavailable);
    pending().finally(late - 5..late, Reused).passes();
    pending().finally(late - 5..late + 1, Reused).finds(&[Unsettled]);
}

#[test]
fn each_intent_is_settled_by_itself() {
    let both = |gets| {
        let told = retry().works("a", 10).told("a").probes(1, 10_000..10_010, gets);
        told.with(|case| case.history.requests.last_mut().unwrap().after = true)
    };
    both(Reused).passes();
    both(Nothing).finds(&[Unsettled]);
}
