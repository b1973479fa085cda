//! Small changes that break a promise.

use super::dice::Dice;
use crate::checker::{History, Kind, Policy, Terms, micros};
use crate::event::{Answer, Receipt, Request, Step, What};

/// A change that applies where it finds a place, and is then reported as this kind, possibly with
/// other kinds.
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) make: fn(&Terms, &mut History, &mut Dice) -> bool,
}

pub(super) const CHANGES: [Change; 19] = [
    Change { kind: Kind::SecondEffect, make: an_effect_twice },
    Change { kind: Kind::EffectMissing, make: no_effect },
    Change { kind: Kind::EffectMissing, make: an_effect_without_a_run },
    Change { kind: Kind::ReplayDiffers, make: another_digest },
    Change { kind: Kind::AnswerChanged, make: another_run },
    Change { kind: Kind::FalseMismatch, make: a_mismatch_of_its_own },
    Change { kind: Kind::MismatchMissed, make: another_intent },
    Change { kind: Kind::FalseConflict, make: a_late_conflict },
    Change { kind: Kind::UnexpectedAnswer, make: an_error },
    Change { kind: Kind::OutcomeLost, make: no_answer_in_the_end },
    Change { kind: Kind::SecondRun, make: another_start_under_hold },
    Change { kind: Kind::StaleOutcome, make: another_start },
    Change { kind: Kind::EarlyTakeover, make: an_early_start },
    Change { kind: Kind::FenceRepeated, make: a_start_twice },
    Change { kind: Kind::Unsettled, make: an_answer_too_late },
    Change { kind: Kind::Unasked, make: not_asked },
    Change { kind: Kind::ForeignBody, make: another_caller },
    Change { kind: Kind::ForeignBody, make: a_run_of_another_caller },
    Change { kind: Kind::SuccessWithoutRun, make: no_start },
];

/// A request that received an outcome, and its receipt.
fn told(history: &History, dice: &mut Dice) -> Option<(usize, Receipt)> {
    let all: Vec<usize> =
        (0..history.requests.len()).filter(|at| receipt(&history.requests[*at]).is_some()).collect();
    let at = if all.is_empty() { return None } else { dice.one_of(&all) };
    receipt(&history.requests[at]).map(|receipt| (at, receipt.clone()))
}

/// A request whose outcome was received more than once.
fn told_twice(history: &History, dice: &mut Dice) -> Option<(usize, Receipt)> {
    let (at, found) = told(history, dice)?;
    let same = history.requests.iter().filter_map(receipt).filter(|receipt| receipt.run == found.run);
    (same.count() > 1).then_some((at, found))
}

fn receipt(request: &Request) -> Option<&Receipt> {
    match &request.answer {
        Answer::Outcome { body, .. } => Some(body),
        _ => None,
    }
}

fn receipt_of(request: &mut Request) -> Option<&mut Receipt> {
    match &mut request.answer {
        Answer::Outcome { body, .. } => Some(body),
        _ => None,
    }
}

fn refuse(request: &mut Request, status: u16, code: &str) {
    request.answer = Answer::Refused { status, code: code.into() };
}

fn start_of(history: &History, run: &str) -> Option<Step> {
    history.steps.iter().find(|step| step.run == run && step.what == What::Start).cloned()
}

/// Chooses a place, or leaves the history unchanged if there is none.
macro_rules! place {
    ($place:expr) => {
        match $place {
            Some(place) => place,
            None => return false,
        }
    };
}

fn an_effect_twice(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    if history.effects.is_empty() {
        return false;
    }
    let effect = history.effects[dice.below(history.effects.len() as u64) as usize].clone();
    history.effects.push(effect);
    true
}

fn no_effect(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (_, receipt) = place!(told(history, dice));
    history.effects.retain(|effect| effect.run != receipt.run);
    true
}

fn an_effect_without_a_run(_: &Terms, history: &mut History, _: &mut Dice) -> bool {
    place!(history.effects.last_mut()).run = "nobody".into();
    true
}

fn another_digest(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told_twice(history, dice));
    if let Answer::Outcome { digest, .. } = &mut history.requests[at].answer {
        digest.push('x');
    }
    true
}

fn another_run(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told_twice(history, dice));
    place!(receipt_of(&mut history.requests[at])).run = "another".into();
    true
}

fn a_mismatch_of_its_own(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told_twice(history, dice));
    // A forgotten grant would explain the change, unless the outcome had been received before.
    if terms.forgets {
        return false;
    }
    refuse(&mut history.requests[at], 422, "idempotency_key_reused");
    true
}

fn another_intent(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told(history, dice));
    history.requests[at].intent += 1;
    true
}

fn a_late_conflict(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told(history, dice));
    let told = history.requests[at].clone();
    let (sent_at, ended_at) = (told.ended_at + 1, told.ended_at + 2);
    let mut late = Request { sent_at, ended_at, ..told };
    let code = dice.one_of(&["idempotency_key_pending", "idempotency_outcome_unknown"]);
    refuse(&mut late, 409, code);
    history.requests.push(late);
    true
}

fn an_error(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let at = dice.below(history.requests.len() as u64) as usize;
    let status = dice.one_of(&[500, 413, 400, 404]);
    refuse(&mut history.requests[at], status, "handler_failed");
    true
}

fn no_answer_in_the_end(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, receipt) = place!(told(history, dice));
    let asked_again = history.requests.iter().any(|other| {
        let same = (&other.caller, &other.key) == (&receipt.caller, &receipt.key);
        same && other.after && other.intent == receipt.intent
    });
    if history.requests[at].after || !asked_again {
        return false;
    }
    let told_at = history.requests[at].ended_at;
    for request in &mut history.requests {
        if request.after && receipt_of(request).is_some_and(|other| other.run == receipt.run) {
            request.answer = Answer::Lost;
        }
    }
    // Otherwise no client had the outcome before the last request was sent.
    history
        .requests
        .iter()
        .any(|request| request.after && request.answer == Answer::Lost && told_at < request.sent_at)
}

/// A start after the outcome that follows every rule except that an outcome ends the key.
fn another_start(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (_, receipt) = place!(told(history, dice));
    let start = place!(start_of(history, &receipt.run));
    let fence = start.fence + 10 * micros(terms.lease);
    let (at, attempt) = (start.at + 10 * micros(terms.lease), start.attempt + 1);
    history.steps.push(Step { run: "another".into(), fence, at, attempt, ..start });
    true
}

fn another_start_under_hold(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    terms.policy == Policy::Hold && another_start(terms, history, dice)
}

fn an_early_start(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    if terms.policy == Policy::Hold || terms.abandons {
        return false;
    }
    let (_, receipt) = place!(told(history, dice));
    let start = place!(start_of(history, &receipt.run));
    let released = history.steps.iter().any(|step| step.run == start.run && step.what == What::Release);
    let forgotten = terms.forgets && start.attempt == 1;
    let fence = start.fence + dice.below(micros(terms.lease) - 1) + 1;
    history.steps.push(Step { run: "another".into(), fence, attempt: start.attempt + 1, ..start });
    !released && !forgotten
}

fn a_start_twice(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let starts: Vec<usize> =
        (0..history.steps.len()).filter(|at| history.steps[*at].what == What::Start).collect();
    if starts.is_empty() {
        return false;
    }
    let mut again = history.steps[dice.one_of(&starts)].clone();
    let fence = again.fence;
    match dice.below(3) {
        // The same run again, another run with its fence, or the next fence with its attempt.
        0 => {}
        1 => again.run = "another".into(),
        _ => {
            again.run = "another".into();
            again.fence += 1;
        }
    }
    // Where grants may be forgotten, a first attempt with another fence is a new life of the key.
    let begins_anew = terms.forgets && again.attempt == 1 && again.fence != fence;
    history.steps.push(again);
    !begins_anew
}

fn an_answer_too_late(terms: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, receipt) = place!(told(history, dice));
    let told: Vec<usize> = (0..history.requests.len())
        .filter(|at| self::receipt(&history.requests[*at]).is_some_and(|other| other.run == receipt.run))
        .collect();
    if terms.policy == Policy::Hold || told != [at] || !history.requests[at].after {
        return false;
    }
    history.requests[at].ended_at = terms.healed_at + micros(terms.lease) + micros(terms.settle) + 1;
    true
}

fn not_asked(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let at = dice.below(history.requests.len() as u64) as usize;
    let Request { caller, key, after, .. } = history.requests[at].clone();
    history.requests.retain(|other| !other.after || (&other.caller, &other.key) != (&caller, &key));
    !after
}

fn another_caller(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (at, _) = place!(told(history, dice));
    let other = if history.requests[at].caller == "ann" { "bob" } else { "ann" };
    match dice.percent(50) {
        true => history.requests[at].caller = other.into(),
        false => place!(receipt_of(&mut history.requests[at])).caller = other.into(),
    }
    true
}

fn a_run_of_another_caller(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (_, receipt) = place!(told(history, dice));
    let start = history.steps.iter_mut().find(|step| step.run == receipt.run);
    place!(start).caller = if receipt.caller == "ann" { "bob".into() } else { "ann".into() };
    true
}

fn no_start(_: &Terms, history: &mut History, dice: &mut Dice) -> bool {
    let (_, receipt) = place!(told(history, dice));
    history.steps.retain(|step| step.run != receipt.run);
    true
}
