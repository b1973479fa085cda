//! Holds what clients, handlers and the ledger saw against what semel promises.
//!
//! Pure: a history in, violations out. It knows nothing of the faults, and of the store only what is in [`Terms`].
//! What it takes for granted:
//!
//! - The logs are whole, but for a half line at the end: a request that was sent is logged, if only as lost; a handler logs
//!   that it starts before it does anything, and that it releases before it answers so.
//! - Retention is longer than a round, and nobody sets the store's clock.

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

/// What happens to a key whose attempt was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Policy {
    /// It is held: nothing runs again.
    Hold,
    /// The next attempt takes over.
    Retry,
    /// The next attempt takes over, and the effect is committed with the outcome.
    Transactional,
}

/// What was agreed for a round.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) policy: Policy,
    pub(crate) lease: Duration,
    /// When the last fault was over.
    pub(crate) healed_at: u64,
    /// Leases may end early because attempts are abandoned: a gateway that lost its upstream.
    pub(crate) abandons: bool,
    /// The database itself was killed, under `transactional`: a first grant is not flushed by itself, so it may be lost as long as
    /// its outcome is, and the key then begins anew.
    pub(crate) forgets: bool,
    /// No process was killed or stopped, and under `retry` the store was let alone, too: whoever started has gone on. So no
    /// key is held in the end, and none is taken over.
    pub(crate) survivors: bool,
    /// Outcomes expire soon, so that those that were told are not asked for again.
    pub(crate) expires: bool,
    /// How long settling may take after healing, besides a lease.
    pub(crate) settle: Duration,
}

/// Says what was seen, and what of it may not be.
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
