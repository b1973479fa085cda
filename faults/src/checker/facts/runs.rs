//! Tests of starts and fences.

use super::case::Gets::{Nothing, Outcome, Unknown};
use super::case::{Case, LEASE, hold, retry, transactional};
use crate::checker::Kind::{
    EarlyTakeover, EffectMissing, FenceRepeated, ForeignBody, MismatchMissed, SecondRun,
};
use crate::event::{Request, Step};

#[test]
fn under_hold_a_handler_starts_again_only_if_each_one_before_released() {
    let released = || hold().starts("a", 10).releases("a", 20);
    released().works("b", 20).told("b").passes();
    released().starts("b", 30).releases("b", 40).works("c", 50).told("c").passes();
    hold().starts("a", 10).works("b", 5_000).told("b").finds(&[SecondRun]);
    released().starts("b", 30).works("c", 50).told("c").finds(&[SecondRun]);
}

#[test]
fn under_hold_a_release_after_the_next_start_is_no_excuse() {
    hold().starts("a", 10).works("b", 20).releases("a", 21).told("b").finds(&[SecondRun]);
}

#[test]
fn under_hold_not_even_a_lease_that_ran_out_lets_a_handler_start() {
    let lost = || hold().starts("a", 10).asks(0..50, Nothing);
    lost().finally(0..10, Unknown).passes();
    lost().works("b", 10 + 2 * LEASE).finally(0..10, Outcome("b")).finds(&[SecondRun]);
}

#[test]
fn a_takeover_waits_for_the_lease() {
    for case in [retry, transactional] {
        case().starts("a", 10).works("b", 10 + LEASE).told("b").passes();
        case().starts("a", 10).works("b", 10 + LEASE - 1).told("b").finds(&[EarlyTakeover]);
    }
}

#[test]
fn a_released_key_is_free_at_once() {
    retry().starts("a", 10).releases("a", 20).works("b", 21).told("b").passes();
    retry().starts("a", 10).works("b", 21).releases("a", 22).told("b").finds(&[EarlyTakeover]);
}

#[test]
fn an_abandoned_key_is_free_at_once_where_that_may_be() {
    let taken = || retry().starts("a", 10).works("b", 11).told("b");
    taken().with(|case| case.terms.abandons = true).passes();
    taken().finds(&[EarlyTakeover]);
}

/// A first grant of a transactional key is not flushed, so it may be lost when the database is
/// killed.
#[test]
fn a_forgotten_grant_may_start_again_where_that_is_allowed() {
    let anew = || transactional().starts("a", 10).works("b", 11).with_attempt(1).told("b");
    anew().with(|case| case.terms.forgets = true).passes();
    anew().finds(&[EarlyTakeover, FenceRepeated]);
    // The first grant of the new record was voided before its handler started.
    let second = || transactional().starts("a", 10).works("b", 11).told("b");
    second().with(|case| case.terms.forgets = true).passes();
    // A later grant is flushed.
    for attempt in [1, 2, 3] {
        let third =
            transactional().starts("a", 10).with_attempt(2).works("b", 11).with_attempt(attempt).told("b");
        let kinds: &[_] = if attempt < 3 { &[EarlyTakeover, FenceRepeated] } else { &[EarlyTakeover] };
        third.with(|case| case.terms.forgets = true).finds(kinds);
    }
}

#[test]
fn fences_and_attempts_rise_together() {
    retry().starts("a", 10).works("b", 2_000).with_attempt(7).told("b").passes();
    retry().starts("a", 10).works("b", 2_000).with_attempt(1).told("b").finds(&[FenceRepeated]);
}

#[test]
fn two_runs_never_have_one_fence() {
    retry().starts("a", 10).works("b", 10).told("b").finds(&[FenceRepeated]);
    hold().starts("a", 10).works("b", 10).told("b").finds(&[FenceRepeated]);
}

#[test]
fn a_run_starts_once() {
    retry().works("a", 10).starts("a", 10).with_attempt(1).told("a").finds(&[FenceRepeated]);
    let again = hold().starts("a", 10).releases("a", 11).starts("a", 2_000);
    again.asks(0..50, Nothing).finally(0..10, Unknown).finds(&[FenceRepeated]);
}

/// A handler that was stopped, or a request that waited at a stopped upstream, starts late with its
/// old fence.
#[test]
fn a_late_start_with_an_old_fence_is_fine() {
    let late = |case: &mut Case| case.history.steps[0].at = 3_000_000;
    retry().starts("a", 10).works("b", 2_000).told("b").with(late).passes();
}

#[test]
fn one_intent_runs() {
    let probed = || retry().starts("a", 10).probes(1, 0..10, Nothing);
    probed().works("b", 2_000).told("b").passes();
    probed().with_intent(1).works("b", 2_000).told("b").finds(&[MismatchMissed]);
}

#[test]
fn a_run_is_of_a_key_that_was_asked_for() {
    hold().works("a", 10).told("a").passes();
    hold().works("a", 10).finds(&[ForeignBody]);
    hold().effect("a").finds(&[EffectMissing, ForeignBody]);
}

#[test]
fn a_run_is_of_one_key() {
    let released = || retry().starts("a", 10).releases("a", 20).works("b", 30).told("b");
    released().passes();
    released().with(|case| case.history.steps[1].run = "x".into()).finds(&[EarlyTakeover, ForeignBody]);
    // The same run under two keys, both of which were requested.
    let held = || hold().starts("a", 10).asks(0..50, Nothing).finally(0..10, Unknown);
    let bobs = |run: &'static str| {
        held().with(|case| {
            let Case { history, .. } = hold().starts(run, 10).asks(0..50, Nothing).finally(0..10, Unknown);
            let requests = history.requests.into_iter();
            case.history.requests.extend(requests.map(|asked| Request { caller: "bob".into(), ..asked }));
            let steps = history.steps.into_iter();
            case.history.steps.extend(steps.map(|step| Step { caller: "bob".into(), ..step }));
        })
    };
    bobs("b").passes();
    bobs("a").finds(&[ForeignBody]);
}
