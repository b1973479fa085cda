//! The effects in the ledger.

use super::answers::Told;
use super::kind::Kind;
use super::story::Story;
use super::verdict::Findings;
use super::{Policy, Terms};

pub(super) fn check(
    terms: &Terms,
    story: &Story<'_>,
    told: &Told<'_>,
    started_elsewhere: &dyn Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    let runs = || story.effects.iter().map(|effect| effect.run.as_str()).collect::<Vec<_>>().join(", ");
    if terms.policy != Policy::Retry && story.effects.len() > 1 {
        findings.report(Kind::SecondEffect, || {
            format!("there are {} effects, of the runs {}", story.effects.len(), runs())
        });
    } else if let Some([effect, _]) = story.effects.array_windows().find(|[one, next]| one.run == next.run) {
        findings.report(Kind::SecondEffect, || format!("run {} had its effect more than once", effect.run));
    }
    for (run, outcome) in told.runs() {
        let has_effect = story.effects.binary_search_by_key(&run, |effect| effect.run.as_str()).is_ok();
        // A run that never started is reported elsewhere.
        if !has_effect && story.run(run).is_some() {
            findings.report(Kind::EffectMissing, || {
                format!("{}, which has no effect; there are effects of: {}", outcome.seen(), runs())
            });
        }
    }
    for effect in &story.effects {
        let run = &effect.run;
        if story.run(run).is_some() || told.is_of(run) {
            continue;
        }
        if started_elsewhere(run) {
            findings.report(Kind::ForeignBody, || {
                format!("run {run} had an effect here, and started under another key")
            });
        } else {
            findings.report(Kind::EffectMissing, || {
                format!("run {run} had an effect, but no handler logged that it started")
            });
        }
    }
}
