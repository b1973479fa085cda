//! The answers to clients, compared with the recorded outcome.

use super::kind::Kind;
use super::story::{Seen, Story};
use super::verdict::Findings;
use crate::event::{Answer, Receipt, Request};

/// The problem code for a running attempt.
pub(super) const PENDING: &str = "idempotency_key_pending";
/// The problem code for a lost attempt.
pub(crate) const OUTCOME_UNKNOWN: &str = "idempotency_outcome_unknown";
/// The problem code for a key that was used for another request.
pub(super) const REUSED: &str = "idempotency_key_reused";

/// The outcome of a key, as one client received it.
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

/// All outcomes of this key that clients received. Receipts of other keys and other intents are
/// reported elsewhere and left out here, because they prove nothing about this key.
pub(super) struct Told<'a> {
    pub(super) all: Vec<Outcome<'a>>,
    /// The first outcome that any client received.
    pub(super) first: Option<Outcome<'a>>,
    /// The outcomes by run, in the order of the runs' names. More than one is a violation.
    runs: Vec<Outcome<'a>>,
}

impl<'a> Told<'a> {
    /// Reads the receipts, and reports those that this client must not receive.
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

    /// The runs whose outcome was received.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&'a str, &Outcome<'a>)> {
        self.runs.iter().map(|outcome| (outcome.receipt.run.as_str(), outcome))
    }

    pub(super) fn is_of(&self, run: &str) -> bool {
        self.runs.binary_search_by_key(&run, |outcome| outcome.receipt.run.as_str()).is_ok()
    }

    /// The first outcome, if a client had received it before this request was sent.
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

/// Checks that the outcome has the highest fence of all runs. An outcome can only be recorded with
/// the current fence of the key, and no fence is granted afterwards. This holds for a store that
/// forgets, too: it only forgets first grants, whose owners then find no record.
fn current(story: &Story<'_>, told: &Told<'_>, findings: &mut Findings<'_>) {
    for outcome in &told.all {
        let Some(run) = story.run(&outcome.receipt.run) else {
            continue;
        };
        if run.start.fence != outcome.receipt.fence {
            findings.report(Kind::StaleOutcome, || format!("{}, but it was {run}", outcome.seen()));
        }
    }
    // If there are two outcomes, one of them is stale; that is already reported as a changed
    // answer.
    let (Some(first), Some(last), false) = (told.first, story.runs.last(), findings.has(Kind::AnswerChanged))
    else {
        return;
    };
    if story.run(&first.receipt.run).is_some_and(|run| run.start.fence < last.start.fence) {
        findings.report(Kind::StaleOutcome, || format!("{}, but the key was given to {last}", first.seen()));
    }
}
