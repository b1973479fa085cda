//! The comparison of the logs of clients, handlers and the ledger with the promises of semel.
//!
//! The checker is pure: a history goes in, violations come out. It does not depend on the faults,
//! and knows about the store only the content of [`Terms`]. Its assumptions:
//!
//! - The logs are complete, except for half a line at the end: a request that was sent is logged,
//!   at least as lost; a handler logs its start before any other step, and its release before the
//!   answer.
//! - Retention is longer than a round, and the store's clock is never set.

mod history;
mod kind;
mod verdict;
mod story;
mod runs;
mod effects;
mod answers;
mod intents;
mod conflicts;
mod settling;
#[cfg(test)]
mod facts;

use std::time::Duration;

pub(crate) use answers::OUTCOME_UNKNOWN;
pub(crate) use history::History;
pub(crate) use kind::Kind;
#[cfg(test)]
pub(crate) use verdict::Violation;
pub(crate) use verdict::{Counts, Verdict};

use answers::Told;
use story::stories;
use verdict::Findings;

/// The policy for a key whose attempt was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Policy {
    /// The key is held, and nothing runs again.
    Hold,
    /// The next attempt takes over.
    Retry,
    /// The next attempt takes over, and the effect is committed with the outcome.
    Transactional,
}

/// The conditions of a round.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) policy: Policy,
    pub(crate) lease: Duration,
    /// The end of the last fault.
    pub(crate) healed_at: u64,
    /// Set if leases may end early because attempts are abandoned: a gateway lost its upstream.
    pub(crate) abandons: bool,
    /// Set if the database was killed under `transactional`: a first grant is not flushed by
    /// itself, so it may be lost until its outcome is recorded, and the key then starts a new life.
    pub(crate) forgets: bool,
    /// Set if no process was killed or stopped and, under `retry`, the store had no faults either:
    /// every handler that started has continued. No key is held at the end, and none is taken over.
    pub(crate) survivors: bool,
    /// Set if outcomes expire soon, so that received outcomes are not requested again.
    pub(crate) expires: bool,
    /// The time limit for settling after healing, in addition to one lease.
    pub(crate) settle: Duration,
}

/// Checks a history: the counts of its events, and the violations.
pub(crate) fn check(terms: &Terms, history: &History) -> Verdict {
    let mut counts = Counts::of(history);
    let mut violations = Vec::new();
    let (stories, whose) = stories(history);
    counts.keys = stories.len();
    for (number, story) in stories.iter().enumerate() {
        let mut findings = Findings::new(story);
        let started_elsewhere = |run: &str| whose.get(run).is_some_and(|owner| *owner != number);
        runs::check(terms, story, &started_elsewhere, &mut findings);
        let told = Told::read(story, &started_elsewhere, &mut findings);
        answers::check(story, &told, &mut findings);
        effects::check(terms, story, &told, &started_elsewhere, &mut findings);
        conflicts::check(terms, story, &told, &mut findings);
        intents::check(terms, story, &told, &mut findings);
        settling::check(terms, story, &told, &mut findings);
        counts.runs += story.runs.len();
        counts.takeovers += story.takeovers();
        violations.extend(findings.into_violations());
    }
    violations.sort_by(|a, b| (a.kind, &a.caller, &a.key).cmp(&(b.kind, &b.caller, &b.key)));
    Verdict { counts, violations }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
