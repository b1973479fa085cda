//! The state of each key after healing.

use std::collections::BTreeMap;

use super::answers::{OUTCOME_UNKNOWN, Outcome, Told};
use super::intents::is_mismatch;
use super::kind::Kind;
use super::story::{At, Seen, Story};
use super::verdict::Findings;
use super::{Policy, Terms, micros};
use crate::event::{Answer, Request};

pub(super) fn check(terms: &Terms, story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    let mut asked: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
    for request in story.requests.iter().filter(|request| request.after) {
        asked.entry(request.intent).or_default().push(request);
    }
    let is_over = terms.expires && (!told.all.is_empty() || story.requests.iter().any(|r| is_mismatch(r)));
    if let (Some(last), true) = (story.requests.last(), asked.is_empty() && !is_over) {
        findings.report(Kind::Unasked, || format!("no request after healing; the last: {}", Seen(last)));
    }
    let mut firsts: BTreeMap<u32, &Outcome<'_>> = BTreeMap::new();
    for outcome in &told.all {
        let first = firsts.entry(outcome.request.intent).or_insert(outcome);
        if outcome.request.ended_at < first.request.ended_at {
            *first = outcome;
        }
    }
    for (intent, requests) in asked {
        // Consequences of an answer that is already reported are not reported again.
        if findings.is_spoiled(intent) {
            continue;
        }
        match firsts.get(&intent) {
            Some(first) => {
                kept(first, &requests, findings);
                in_time(terms, first, &requests, findings);
            }
            None => settled(terms, &requests, findings),
        }
    }
}

/// Checks that the last request receives the outcome that a client had received.
fn kept(first: &Outcome<'_>, requests: &[&Request], findings: &mut Findings<'_>) {
    let is_told = |request: &&&Request| matches!(request.answer, Answer::Outcome { .. });
    let told = || requests.iter().filter(is_told);
    let last_sent = told().map(|request| request.sent_at).max();
    let last_ended = told().map(|request| request.ended_at).max();
    for request in requests.iter().filter(|request| !is_told(request)) {
        if Some(request.sent_at) <= last_sent || Some(request.ended_at) <= last_ended {
            continue;
        }
        let seen = || format!("{}; and then {}, and nobody got it later", first.seen(), Seen(request));
        if first.request.ended_at < request.sent_at {
            findings.report(Kind::OutcomeLost, seen);
        } else {
            // The request may have been in flight all the time. Only a later request can show the
            // outcome.
            findings.report(Kind::Unasked, || {
                format!("{}; but no request was sent since: {}", first.seen(), Seen(request))
            });
        }
    }
}

/// Checks that every lost attempt was taken over one lease later.
fn in_time(terms: &Terms, first: &Outcome<'_>, requests: &[&Request], findings: &mut Findings<'_>) {
    let deadline = deadline(terms, requests);
    if terms.policy != Policy::Hold && first.request.ended_at > deadline {
        findings.report(Kind::Unsettled, || {
            format!("nobody had the outcome by {}; {}", At(deadline), first.seen())
        });
    }
}

/// Checks an intent without an outcome: the key belongs to another intent, or is known to be held
/// under `hold`.
fn settled(terms: &Terms, requests: &[&Request], findings: &mut Findings<'_>) {
    let Some(last) = requests.last() else {
        return;
    };
    let deadline = deadline(terms, requests);
    let is_settled = match terms.policy {
        Policy::Hold => is_mismatch(last) || is_held(last) && !terms.survivors,
        Policy::Retry | Policy::Transactional => {
            requests.iter().any(|request| is_mismatch(request) && request.ended_at <= deadline)
        }
    };
    if !is_settled {
        findings.report(Kind::Unsettled, || {
            let limit = match terms.policy {
                Policy::Hold => String::new(),
                Policy::Retry | Policy::Transactional => format!(" by {}", At(deadline)),
            };
            format!("healed at {}, and no answer{limit}; the last: {}", At(terms.healed_at), Seen(last))
        });
    }
}

fn is_held(request: &Request) -> bool {
    matches!(&request.answer, Answer::Refused { status: 409, code } if code == OUTCOME_UNKNOWN)
}

/// The time by which every lease from before healing is over, and a request was sent since.
fn deadline(terms: &Terms, requests: &[&Request]) -> u64 {
    let over_at = terms.healed_at.saturating_add(micros(terms.lease));
    let asked_at = requests.first().map_or(0, |first| first.sent_at);
    over_at.max(asked_at).saturating_add(micros(terms.settle))
}
