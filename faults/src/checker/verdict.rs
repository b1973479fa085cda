//! The result of a check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::history::History;
use super::kind::Kind;
use super::story::Story;
use crate::event::{Answer, Request};

/// The counts of the events, and the violations.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) counts: Counts,
    /// The violations in the order of kinds, callers and keys; one of a kind for each key.
    pub(crate) violations: Vec<Violation>,
}

impl Verdict {
    /// The number of keys for each broken promise.
    pub(crate) fn kinds(&self) -> BTreeMap<Kind, usize> {
        let mut kinds = BTreeMap::new();
        for violation in &self.violations {
            *kinds.entry(violation.kind).or_default() += 1;
        }
        kinds
    }
}

/// A promise that was broken for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    pub(crate) caller: String,
    pub(crate) key: String,
    /// The events that show the violation, with times and callers.
    pub(crate) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: caller {}, key {}: {}", self.kind, self.caller, self.key, self.detail)
    }
}

/// The numbers of events, because a check of no events finds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) keys: usize,
    pub(crate) requests: usize,
    pub(crate) runs: usize,
    pub(crate) effects: usize,
    /// Answers of handlers, including replays.
    pub(crate) outcomes: usize,
    pub(crate) replays: usize,
    /// Answers with status 409.
    pub(crate) conflicts: usize,
    /// Answers with status 422.
    pub(crate) mismatches: usize,
    /// Answers with status 503.
    pub(crate) unavailable: usize,
    /// Refusals with any other status.
    pub(crate) otherwise: usize,
    pub(crate) lost: usize,
    /// Runs of a key that the previous run had not released.
    pub(crate) takeovers: usize,
}

impl Counts {
    /// Adds the counts of another round.
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.keys, other.keys),
            (&mut self.requests, other.requests),
            (&mut self.runs, other.runs),
            (&mut self.effects, other.effects),
            (&mut self.outcomes, other.outcomes),
            (&mut self.replays, other.replays),
            (&mut self.conflicts, other.conflicts),
            (&mut self.mismatches, other.mismatches),
            (&mut self.unavailable, other.unavailable),
            (&mut self.otherwise, other.otherwise),
            (&mut self.lost, other.lost),
            (&mut self.takeovers, other.takeovers),
        ];
        for (mine, others) in pairs {
            *mine += others;
        }
    }

    /// Counts the events; the counts that need the keys are added later.
    pub(super) fn of(history: &History) -> Self {
        let mut counts =
            Self { requests: history.requests.len(), effects: history.effects.len(), ..Self::default() };
        for request in &history.requests {
            match request.answer {
                Answer::Lost => counts.lost += 1,
                Answer::Outcome { replayed, .. } => {
                    counts.outcomes += 1;
                    counts.replays += usize::from(replayed);
                }
                Answer::Refused { status: 409, .. } => counts.conflicts += 1,
                Answer::Refused { status: 422, .. } => counts.mismatches += 1,
                Answer::Refused { status: 503, .. } => counts.unavailable += 1,
                Answer::Refused { .. } => counts.otherwise += 1,
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} keys, {} requests, {} runs ({} takeovers), {} effects; {} outcomes ({} replays), {} x 409, {} x 422, \
             {} x 503, {} refused otherwise, {} lost",
            self.keys,
            self.requests,
            self.runs,
            self.takeovers,
            self.effects,
            self.outcomes,
            self.replays,
            self.conflicts,
            self.mismatches,
            self.unavailable,
            self.otherwise,
            self.lost
        )
    }
}

/// The findings about one key so far.
pub(super) struct Findings<'a> {
    story: &'a Story<'a>,
    /// The first violation of each kind, and the number of further ones: a key that is requested a
    /// million times gets one report.
    found: Vec<(Violation, usize)>,
    /// Intents with a reported answer after healing: consequences of that are not reported.
    spoiled: BTreeSet<u32>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(story: &'a Story<'a>) -> Self {
        Self { story, found: Vec::new(), spoiled: BTreeSet::new() }
    }

    pub(super) fn report(&mut self, kind: Kind, detail: impl FnOnce() -> String) {
        if let Some((_, more)) = self.found.iter_mut().find(|(violation, _)| violation.kind == kind) {
            *more += 1;
            return;
        }
        let Story { caller, key, .. } = *self.story;
        let violation = Violation { kind, caller: caller.to_owned(), key: key.to_owned(), detail: detail() };
        self.found.push((violation, 0));
    }

    /// Reports a violation in the answer to a request.
    pub(super) fn report_answer(&mut self, kind: Kind, request: &Request, detail: impl FnOnce() -> String) {
        if request.after {
            self.spoiled.insert(request.intent);
        }
        self.report(kind, detail);
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.found.iter().any(|(violation, _)| violation.kind == kind)
    }

    pub(super) fn is_spoiled(&self, intent: u32) -> bool {
        self.spoiled.contains(&intent)
    }

    pub(super) fn into_violations(self) -> impl Iterator<Item = Violation> {
        self.found.into_iter().map(|(violation, more)| match more {
            0 => violation,
            _ => {
                Violation { detail: format!("{}; and {more} more like this", violation.detail), ..violation }
            }
        })
    }
}
