//! Tests with large histories.

use std::time::{Duration, Instant};

use super::case::Gets::Outcome;
use super::case::{Case, retry};
use crate::checker::{Counts, Kind, check};
use crate::event::{Answer, Effect, Step};

const REQUESTS: usize = 1_000_000;
/// The time limit: linear work takes seconds, also unoptimised and on a busy machine; quadratic
/// work takes hours.
const LIMIT: Duration = Duration::from_secs(120);

fn timed(case: &Case) -> (Counts, Vec<Kind>) {
    let began = Instant::now();
    let verdict = check(&case.terms, &case.history);
    let took = began.elapsed();
    eprintln!("{} in {took:?}", verdict.counts);
    assert!(took < LIMIT, "it took {took:?}");
    (verdict.counts, verdict.violations.iter().map(|violation| violation.kind).collect())
}

/// Copies of one case, each under another key.
fn many(one: &Case, keys: usize) -> Case {
    let mut all = Case { terms: one.terms.clone(), history: Default::default() };
    for number in 0..keys {
        let key = format!("k{number}");
        let run = |run: &str| format!("{run}{number}");
        let requests = one.history.requests.iter().cloned().map(|mut request| {
            request.key.clone_from(&key);
            if let Answer::Outcome { body, .. } = &mut request.answer {
                body.key.clone_from(&key);
                body.run = run(&body.run);
            }
            request
        });
        all.history.requests.extend(requests);
        let steps = one.history.steps.iter().cloned();
        all.history.steps.extend(steps.map(|step| Step { key: key.clone(), run: run(&step.run), ..step }));
        let effects = one.history.effects.iter().cloned();
        all.history.effects.extend(effects.map(|e| Effect { key: key.clone(), run: run(&e.run), ..e }));
    }
    all
}

#[test]
fn a_million_requests_of_many_keys_are_checked_in_seconds() {
    let mut one = retry().starts("a", 10).works("b", 2_000).told("b");
    while one.history.requests.len() < 10 {
        one = one.asks(6_000..6_001, Outcome("b"));
    }
    let mut all = many(&one, REQUESTS / 10);
    let (counts, kinds) = timed(&all);
    assert_eq!((counts.requests, counts.keys, counts.takeovers), (REQUESTS, REQUESTS / 10, REQUESTS / 10));
    assert_eq!(kinds, []);
    all.history.effects.pop();
    assert_eq!(timed(&all).1, [Kind::EffectMissing]);
}

#[test]
fn a_million_requests_of_one_key_are_checked_in_seconds() {
    let mut case = retry().starts("a", 10).works("b", 2_000).told("b");
    let last = case.history.requests[1].clone();
    case.history.requests.resize(REQUESTS, last);
    let (counts, kinds) = timed(&case);
    assert_eq!((counts.requests, counts.keys, counts.outcomes), (REQUESTS, 1, REQUESTS));
    assert_eq!(kinds, []);
}

/// The worst case: every request has a run, a digest and an intent of its own.
#[test]
fn a_million_wrong_answers_are_told_of_in_seconds() {
    let mut case = retry().works("b", 2_000).told("b");
    let last = case.history.requests[1].clone();
    case.history.requests.resize(REQUESTS / 2, last.clone());
    for (number, request) in case.history.requests.iter_mut().enumerate() {
        if let Answer::Outcome { body, .. } = &mut request.answer {
            body.run = format!("r{number}");
        }
    }
    let reused = Answer::Refused { status: 422, code: "idempotency_key_reused".into() };
    for intent in 1..=(REQUESTS / 2) as u32 {
        case.history.requests.push(crate::event::Request { intent, answer: reused.clone(), ..last.clone() });
    }
    for number in 0..REQUESTS / 4 {
        let run = format!("r{number}");
        case.history.effects.push(Effect { caller: "ann".into(), key: "k".into(), run: run.clone() });
        let step = case.history.steps[0].clone();
        case.history.steps.push(Step { run, fence: number as u64, ..step });
    }
    let (_, kinds) = timed(&case);
    assert!(kinds.contains(&Kind::AnswerChanged) && kinds.contains(&Kind::FenceRepeated), "{kinds:?}");
    assert!(kinds.len() < Kind::ALL.len(), "one of a kind for a key: {kinds:?}");
}
