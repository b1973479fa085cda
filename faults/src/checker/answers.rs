//! What clients got, and whether it is what was recorded.

use super::kind::Kind;
use super::story::{Seen, Story};
use super::verdict::Findings;
use crate::event::{Answer, Receipt, Request};

/// Another attempt runs.
pub(super) const PENDING: &str = "idempotency_key_pending";
/// An attempt was lost.
pub(crate) const OUTCOME_UNKNOWN: &str = "idempotency_outcome_unknown";
/// The key was used for another request.
pub(super) const REUSED: &str = "idempotency_key_reused";

/// The outcome of a key, as one client was told it.
#[derive(Clone, Copy)]
pub(super) struct Outcome<'a> {
    pub(super) request: &'a Request,
    pub(super) status: u16,
    pub(super) digest: &'a str,
    pub(super) receipt: &'a Receipt,
}

impl<'a> Outcome<'a> {
    pub(super) fn seen(&self) -> Seen<'a> {
        Seen(self.request)
    }
}

/// All that clients were told of this key's outcome. Receipts of other keys and other intents are left out: they are reported, and
/// say nothing about this key.
pub(super) struct Told<'a> {
    pub(super) all: Vec<Outcome<'a>>,
    /// The first that somebody had.
    pub(super) first: Option<Outcome<'a>>,
    /// One for each run, in the order of their names. More than one is a violation.
    runs: Vec<Outcome<'a>>,
}

impl<'a> Told<'a> {
    /// Reads the receipts, and reports those that this client should not have got.
    pub(super) fn read(
        story: &Story<'a>,
        started_elsewhere: &dyn Fn(&str) -> bool,
        findings: &mut Findings<'_>,
    ) -> Self {
        let mut all = Vec::new();
        for request in &story.requests {
            let Answer::Outcome { status, digest, body: receipt, .. } = &request.answer else {
                continue;
            };
            let is_own = receipt.caller == story.caller && receipt.key == story.key;
            if !is_own || story.run(&receipt.run).is_none() && started_elsewhere(&receipt.run) {
                findings.report_answer(Kind::ForeignBody, request, || {
                    let of = format!("caller {}, key {}", receipt.caller, receipt.key);
                    let whose = if is_own { "whose run started under another key" } else { of.as_str() };
                    format!("{}: a receipt of {whose}", Seen(request))
                });
            } else if receipt.intent != request.intent {
                findings.report_answer(Kind::MismatchMissed, request, || {
                    format!("{}, which is the outcome of intent {}", Seen(request), receipt.intent)
                });
            } else {
                all.push(Outcome { request, status: *status, digest, receipt });
            }
        }
        let first = all.iter().min_by_key(|outcome| outcome.request.ended_at).copied();
        let mut runs: Vec<Outcome<'_>> = match first {
            Some(first) => {
                let others = all.iter().filter(|other| other.receipt.run != first.receipt.run);
                std::iter::once(first).chain(others.copied()).collect()
            }
            None => Vec::new(),
        };
        runs.sort_by_key(|outcome| outcome.receipt.run.as_str());
        runs.dedup_by_key(|outcome| outcome.receipt.run.as_str());
        Self { all, first, runs }
    }

    /// The runs whose outcome was told.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&'a str, &Outcome<'a>)> {
        self.runs.iter().map(|outcome| (outcome.receipt.run.as_str(), outcome))
    }

    pub(super) fn is_of(&self, run: &str) -> bool {
        self.runs.binary_search_by_key(&run, |outcome| outcome.receipt.run.as_str()).is_ok()
    }

    /// Whether somebody had the outcome before this request was sent.
    pub(super) fn before(&self, request: &Request) -> Option<&Outcome<'a>> {
        self.first.as_ref().filter(|first| first.request.ended_at < request.sent_at)
    }
}

pub(super) fn check(story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    for request in &story.requests {
        if !is_expected(&request.answer) {
            findings.report_answer(Kind::UnexpectedAnswer, request, || Seen(request).to_string());
        }
    }
    same(told, findings);
    made_by_a_run(story, told, findings);
    current(story, told, findings);
}

fn is_expected(answer: &Answer) -> bool {
    match answer {
        Answer::Lost => true,
        Answer::Outcome { status, .. } => (200..300).contains(status),
        Answer::Refused { status: 409, code } => code == PENDING || code == OUTCOME_UNKNOWN,
        Answer::Refused { status: 422, code } => code == REUSED,
        Answer::Refused { status, .. } => matches!(status, 502..=504),
    }
}

fn same(told: &Told<'_>, findings: &mut Findings<'_>) {
    let Some(first) = told.first else {
        return;
    };
    for outcome in &told.all {
        let differs = || format!("{}; but {}", first.seen(), outcome.seen());
        if outcome.receipt.run != first.receipt.run {
            findings.report_answer(Kind::AnswerChanged, outcome.request, differs);
        } else if (outcome.status, outcome.digest) != (first.status, first.digest) {
            findings.report_answer(Kind::ReplayDiffers, outcome.request, differs);
        }
    }
}

fn made_by_a_run(story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    for (run, outcome) in told.runs() {
        if story.run(run).is_none() {
            findings.report(Kind::SuccessWithoutRun, || format!("{}, which never started", outcome.seen()));
        }
    }
}

/// An outcome can only be recorded with the fence that the key has, and no fence is given out after it. So it is the highest of
/// all. That holds with forgetting, too: what is forgotten is a first grant, and its owner finds no record any more.
fn current(story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    for outcome in &told.all {
        let Some(run) = story.run(&outcome.receipt.run) else {
            continue;
        };
        if run.start.fence != outcome.receipt.fence {
            findings.report(Kind::StaleOutcome, || format!("{}, but it was {run}", outcome.seen()));
        }
    }
    // Of two outcomes one is stale of itself; that is reported as the change that it is.
    let (Some(first), Some(last), false) = (told.first, story.runs.last(), findings.has(Kind::AnswerChanged))
    else {
        return;
    };
    if story.run(&first.receipt.run).is_some_and(|run| run.start.fence < last.start.fence) {
        findings.report(Kind::StaleOutcome, || format!("{}, but the key was given to {last}", first.seen()));
    }
}
