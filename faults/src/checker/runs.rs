//! The starts of handlers, and their fences.

use super::kind::Kind;
use super::story::{Run, Story};
use super::verdict::Findings;
use super::{Policy, Terms, micros};
use crate::event::What;

pub(super) fn check(
    terms: &Terms,
    story: &Story<'_>,
    started_elsewhere: &dyn Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    belong(story, started_elsewhere, findings);
    rise(terms, story, findings);
    match terms.policy {
        Policy::Hold => start_once(story, findings),
        Policy::Retry | Policy::Transactional => wait_for_the_lease(terms, story, findings),
    }
}

/// Checks that a run and its steps belong to exactly one key, which was requested.
fn belong(story: &Story<'_>, started_elsewhere: &dyn Fn(&str) -> bool, findings: &mut Findings<'_>) {
    if story.requests.is_empty() {
        findings.report(Kind::ForeignBody, || match story.runs.first() {
            Some(run) => format!("nobody sent a request with this key, but there is {run}"),
            None => format!(
                "nobody sent a request with this key, but there are {} steps and {} effects",
                story.steps.len(),
                story.effects.len()
            ),
        });
    }
    for run in &story.runs {
        if started_elsewhere(&run.start.run) {
            findings.report(Kind::ForeignBody, || format!("{run}, started under another key, too"));
        }
    }
    for step in &story.steps {
        if story.run(&step.run).is_none() {
            findings.report(Kind::ForeignBody, || {
                let did = if step.what == What::Release { "gave the key back" } else { "answered" };
                format!("run {} {did}, but did not start under this key", step.run)
            });
        }
    }
}

fn rise(terms: &Terms, story: &Story<'_>, findings: &mut Findings<'_>) {
    for (run, next) in story.runs.iter().zip(story.runs.iter().skip(1)) {
        if run.start.fence == next.start.fence {
            findings.report(Kind::FenceRepeated, || format!("two starts have one fence: {run}; {next}"));
        }
    }
    for (run, next) in story.successions() {
        let begins_anew = may_be_forgotten(terms, run);
        if next.start.attempt <= run.start.attempt && !begins_anew {
            findings.report(Kind::FenceRepeated, || {
                format!("the fence rose and the attempt did not: {run}; then {next}")
            });
        }
    }
    // One run with two fences.
    if let Some(run) = story.runs.iter().find(|run| {
        let first = story.run(&run.start.run);
        first.is_some_and(|first| first.start.fence != run.start.fence)
    }) {
        findings.report(Kind::FenceRepeated, || {
            format!("the same run started before, with another fence: {run}")
        });
    }
}

/// Returns `true` if a grant may have been forgotten. Only first grants are not flushed. The next
/// grant is then attempt 1 again; its handler need not be the next one to start.
fn may_be_forgotten(terms: &Terms, run: &Run<'_>) -> bool {
    terms.forgets && run.start.attempt == 1
}

fn start_once(story: &Story<'_>, findings: &mut Findings<'_>) {
    for (run, next) in story.successions().filter(|(run, next)| !run.made_way_for(next)) {
        findings.report(Kind::SecondRun, || format!("{run}; then {next}, though the key was to be held"));
    }
}

/// Checks that the previous lease was over. The fence is the store's clock at the grant, so two
/// fences show how long the previous lease had lasted.
fn wait_for_the_lease(terms: &Terms, story: &Story<'_>, findings: &mut Findings<'_>) {
    if terms.abandons {
        return;
    }
    let lease = micros(terms.lease);
    for (run, next) in story.successions() {
        let begins_anew = may_be_forgotten(terms, run);
        let lasted = next.start.fence - run.start.fence;
        // A renewed lease is not over, however long ago it was granted.
        let early = lasted < lease || terms.survivors;
        if early && !run.made_way_for(next) && !begins_anew {
            findings.report(Kind::EarlyTakeover, || {
                format!(
                    "{run}; then {next}, {lasted} µs later by the store's clock, with a lease of {lease} µs"
                )
            });
        }
    }
}
