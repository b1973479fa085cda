//! Tests of the ledger.

use super::case::Gets::{Nothing, Unknown};
use super::case::{hold, retry, transactional};
use crate::checker::Kind::{EffectMissing, ForeignBody, SecondEffect};

#[test]
fn under_hold_and_transactional_there_is_one_effect() {
    for case in [hold, transactional] {
        case().works("a", 10).told("a").passes();
        case().works("a", 10).effect("a").told("a").finds(&[SecondEffect]);
    }
    transactional().works("a", 10).works("b", 2_000).told("b").finds(&[SecondEffect]);
}

#[test]
fn under_retry_there_is_one_effect_for_each_run() {
    retry().works("a", 10).works("b", 2_000).told("b").passes();
    retry().works("a", 10).works("b", 2_000).effect("a").told("b").finds(&[SecondEffect]);
}

#[test]
fn an_outcome_has_its_effect() {
    for case in [hold, retry, transactional] {
        case().works("a", 10).told("a").passes();
        case().starts("a", 10).told("a").finds(&[EffectMissing]);
    }
    // The effect of another run does not count.
    retry().works("a", 10).starts("b", 2_000).told("b").finds(&[EffectMissing]);
}

#[test]
fn an_unanswered_request_may_have_had_its_effect_or_not() {
    hold().starts("a", 10).asks(0..50, Nothing).finally(0..10, Unknown).passes();
    hold().works("a", 10).asks(0..50, Nothing).finally(0..10, Unknown).passes();
}

#[test]
fn an_effect_is_of_a_run_that_started() {
    retry().works("a", 10).told("a").effect("x").finds(&[EffectMissing]);
    let of_bob = |case: &mut super::case::Case| case.history.effects[0].caller = "bob".into();
    retry().works("a", 10).told("a").with(of_bob).finds(&[EffectMissing, ForeignBody]);
}

/// The handler's commit got no answer, so the handler said that nothing happened; but the commit
/// was applied.
#[test]
fn a_transaction_may_have_been_committed_by_a_run_that_released() {
    transactional().works("a", 10).releases("a", 20).told("a").passes();
}
