//! Status 422: the key was used for another request.

use std::collections::{BTreeMap, BTreeSet};

use super::Terms;
use super::answers::{REUSED, Told};
use super::conflicts::is_conflict;
use super::kind::Kind;
use super::story::{Seen, Story};
use super::verdict::Findings;
use crate::event::{Answer, Request};

/// Returns `true` if the answer says that the key was used for another request.
pub(super) fn is_mismatch(request: &Request) -> bool {
    matches!(&request.answer, Answer::Refused { status: 422, code } if code == REUSED)
}

/// Checks that a key belongs to the intent that claimed it first, through release, void and
/// takeover. Another intent may own it only in a store that forgets the first grant.
pub(super) fn check(terms: &Terms, story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    let owners = Owners::of(story, told);
    if !terms.forgets {
        one_owner(story, &owners, findings);
    }
    for request in story.requests.iter().filter(|request| is_mismatch(request)) {
        if let Some(why) = owners.objection(terms, told, request) {
            findings.report_answer(Kind::FalseMismatch, request, || format!("{}, but {why}", Seen(request)));
        }
    }
}

fn one_owner(story: &Story<'_>, owners: &Owners, findings: &mut Findings<'_>) {
    if let Some([run, next]) =
        story.runs.array_windows().find(|[run, next]| run.start.intent != next.start.intent)
    {
        findings.report(Kind::MismatchMissed, || format!("two intents ran: {run}; then {next}"));
    }
    let is_stranger = |request: &&&Request| {
        is_conflict(request) && !owners.known.is_empty() && !owners.known.contains(&request.intent)
    };
    // A mismatch after the outcome is already reported as a false conflict.
    if !findings.has(Kind::FalseConflict)
        && let Some(request) = story.requests.iter().find(is_stranger)
    {
        findings.report_answer(Kind::MismatchMissed, request, || {
            format!("{}, but the key belongs to intent {:?}", Seen(request), owners.known)
        });
    }
}

/// The intents that may own a key.
struct Owners {
    /// The intents that ran, or whose outcome was received.
    known: BTreeSet<u32>,
    /// The two intents that were sent first, and their times.
    earliest: Vec<(u64, u32)>,
    /// The first sending time of an intent that was not refused as a mismatch, and so may be the
    /// owner.
    possible_from: Option<u64>,
}

impl Owners {
    fn of(story: &Story<'_>, told: &Told<'_>) -> Self {
        let ran = story.runs.iter().map(|run| run.start.intent);
        let known = ran.chain(told.all.iter().map(|outcome| outcome.receipt.intent)).collect();
        let mut sent = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for request in &story.requests {
            sent.entry(request.intent).or_insert(request.sent_at);
            if is_mismatch(request) {
                refused.insert(request.intent);
            }
        }
        let possible = sent.iter().filter(|(intent, _)| !refused.contains(intent));
        let possible_from = possible.map(|(_, sent_at)| *sent_at).min();
        let mut earliest: Vec<(u64, u32)> =
            sent.into_iter().map(|(intent, sent_at)| (sent_at, intent)).collect();
        earliest.sort_unstable();
        earliest.truncate(2);
        Self { known, earliest, possible_from }
    }

    /// The reason why this request cannot have been a mismatch.
    fn objection(&self, terms: &Terms, told: &Told<'_>, request: &Request) -> Option<&'static str> {
        let Request { intent, ended_at, .. } = request;
        if told.before(request).is_some_and(|known| known.receipt.intent == *intent) {
            return Some("its outcome had been told before");
        }
        let another = self.earliest.iter().any(|(sent_at, other)| other != intent && sent_at <= ended_at);
        if !another {
            return Some("nothing else had been sent with this key by then");
        }
        if terms.forgets {
            return None;
        }
        if self.known.contains(intent) {
            return Some("the key belongs to this very request, which has run");
        }
        match self.possible_from {
            Some(sent_at) if sent_at <= *ended_at => None,
            _ => Some("all else that had been sent with this key by then was refused as a mismatch, too"),
        }
    }
}
