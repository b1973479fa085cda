//! Status 409: another request has the key.

use std::collections::BTreeMap;

use super::Terms;
use super::answers::{OUTCOME_UNKNOWN, PENDING, Told};
use super::kind::Kind;
use super::story::{Seen, Story};
use super::verdict::Findings;
use crate::event::{Answer, Request};

/// Returns `true` if the answer says that another request has the key.
pub(super) fn is_conflict(request: &Request) -> bool {
    matches!(&request.answer, Answer::Refused { status: 409, code } if code == PENDING || code == OUTCOME_UNKNOWN)
}

pub(super) fn check(terms: &Terms, story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    let mut sent: BTreeMap<u32, Sent> = BTreeMap::new();
    for request in &story.requests {
        sent.entry(request.intent).or_default().note(request.sent_at);
    }
    for request in story.requests.iter().filter(|request| is_conflict(request)) {
        if let Some(known) = told.before(request) {
            findings.report_answer(Kind::FalseConflict, request, || {
                format!("{}; and then {}", known.seen(), Seen(request))
            });
        } else if !terms.forgets && !sent[&request.intent].has_another(request) {
            // The other request has the same intent, or the answer would be a mismatch. With a
            // store that forgets, a request may lose its own key.
            findings.report_answer(Kind::FalseConflict, request, || {
                format!("{}, but there was no other request for the same by then", Seen(request))
            });
        }
    }
}

/// The sending times of the first two requests.
#[derive(Default)]
struct Sent {
    first: Option<u64>,
    second: Option<u64>,
}

impl Sent {
    /// Notes a request; requests come in the order of their sending times.
    fn note(&mut self, sent_at: u64) {
        if self.first.is_none() {
            self.first = Some(sent_at);
        } else if self.second.is_none() {
            self.second = Some(sent_at);
        }
    }

    /// Returns `true` if another request was sent before this one ended.
    fn has_another(&self, request: &Request) -> bool {
        self.second.is_some_and(|second| second <= request.ended_at)
    }
}
