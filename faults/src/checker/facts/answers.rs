//! Answers.

use super::case::Gets::{Nothing, Outcome, Refused, Unavailable};
use super::case::{hold, retry, transactional};
use crate::checker::Kind::{
    AnswerChanged, ForeignBody, ReplayDiffers, StaleOutcome, SuccessWithoutRun, UnexpectedAnswer,
};

#[test]
fn a_replay_is_equal() {
    let told = || hold().works("a", 10).told("a");
    told().asks(6_000..6_001, Outcome("a")).passes();
    told().but(|_, digest, _| digest.push('x')).finds(&[ReplayDiffers]);
    told().but(|status, _, _| *status = 200).finds(&[ReplayDiffers]);
    told().asks(6_000..6_001, Outcome("a")).but(|_, digest, _| digest.clear()).finds(&[ReplayDiffers]);
}

#[test]
fn an_outcome_never_changes() {
    let taken = || retry().works("a", 10).works("b", 2_000);
    taken().told("b").asks(3_000..6_000, Outcome("b")).passes();
    taken().asks(0..1_500, Outcome("a")).told("b").finds(&[AnswerChanged]);
    taken().told("b").finally(20..30, Outcome("a")).finds(&[AnswerChanged]);
}

#[test]
fn no_caller_gets_the_outcome_of_another_caller() {
    let told = || retry().works("a", 10).told("a").asks(6_000..6_001, Outcome("a"));
    told().passes();
    told().but(|_, _, receipt| receipt.caller = "bob".into()).finds(&[ForeignBody]);
    told().but(|_, _, receipt| receipt.key = "l".into()).finds(&[ForeignBody]);
    // The receipt names our key, but its run belongs to another caller, who did not receive it
    // either.
    let of_bob = |case: &mut super::case::Case| case.history.steps[0].caller = "bob".into();
    told().with(of_bob).finds(&[ForeignBody, ForeignBody]);
}

#[test]
fn callers_with_the_same_key_are_apart() {
    let both = |change: fn(&mut super::case::Case)| {
        retry().works("a", 10).told("a").with(change).with(|case| {
            let bobs = hold().works("b", 12).told("b").history;
            case.history.requests.extend(bobs.requests.into_iter().map(|mut request| {
                request.caller = "bob".into();
                if let crate::event::Answer::Outcome { body, .. } = &mut request.answer {
                    body.caller = "bob".into();
                }
                request
            }));
            let steps =
                bobs.steps.into_iter().map(|step| crate::event::Step { caller: "bob".into(), ..step });
            case.history.steps.extend(steps);
            let effects = bobs.effects.into_iter();
            case.history.effects.extend(effects.map(|e| crate::event::Effect { caller: "bob".into(), ..e }));
        })
    };
    both(|_| {}).passes();
    both(|case| case.history.requests[0].caller = "bob".into()).finds(&[ForeignBody]);
}

#[test]
fn an_outcome_has_a_run() {
    hold().works("a", 10).told("a").passes();
    hold().told("a").finds(&[SuccessWithoutRun]);
    hold().effect("a").told("a").finds(&[SuccessWithoutRun]);
}

#[test]
fn only_the_highest_fence_has_an_outcome() {
    for case in [retry, transactional] {
        case().starts("a", 10).works("b", 2_000).told("b").passes();
        case().works("a", 10).starts("b", 2_000).told("a").finds(&[StaleOutcome]);
        case().works("a", 10).starts("b", 2_000).releases("b", 2_001).told("a").finds(&[StaleOutcome]);
    }
}

#[test]
fn a_receipt_has_the_fence_of_its_run() {
    let asked = || hold().works("a", 10).told("a").asks(6_000..6_001, Outcome("a"));
    asked().but(|_, _, receipt| receipt.fence += 0).passes();
    asked().but(|_, _, receipt| receipt.fence += 1).finds(&[StaleOutcome]);
}

#[test]
fn faults_explain_some_refusals_and_no_others() {
    let told = || hold().works("a", 10).told("a");
    let explained = [
        Nothing,
        Unavailable,
        Refused(503, "outcome_pending"),
        Refused(503, ""),
        Refused(502, "upstream_unreachable"),
        Refused(504, "upstream_timeout"),
    ];
    for gets in explained {
        told().asks(6_000..6_001, gets).passes();
    }
    let others = [
        Refused(500, "handler_failed"),
        Refused(500, "outcome_unrecorded"),
        Refused(413, "request_too_large"),
        Refused(400, "idempotency_key_invalid"),
        Refused(408, "request_timeout"),
        Refused(404, ""),
        Refused(501, ""),
        Refused(505, ""),
        Refused(409, ""),
        Refused(409, "idempotency_key_reused"),
        Refused(422, "idempotency_key_pending"),
    ];
    for gets in others {
        told().asks(0..1, gets).finds(&[UnexpectedAnswer]);
        told().finally(20..30, gets).finds(&[UnexpectedAnswer]);
    }
}

#[test]
fn an_outcome_is_a_success() {
    for status in [200, 201, 299] {
        hold().works("a", 10).finally(0..10, Outcome("a")).but(|is, _, _| *is = status).passes();
    }
    for status in [199, 300, 500] {
        let told = hold().works("a", 10).finally(0..10, Outcome("a"));
        told.but(|is, _, _| *is = status).finds(&[UnexpectedAnswer]);
    }
}
