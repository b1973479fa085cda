//! A small history of one key, written event by event. Times and fences are in milliseconds.

use std::ops::Range;
use std::time::Duration;

use crate::checker::{History, Kind, Policy, Terms, check};
use crate::event::{Answer, Effect, Receipt, Request, Step, What};

pub(super) const LEASE: u64 = 1_000;
pub(super) const HEALED: u64 = 10_000;
pub(super) const SETTLE: u64 = 2_000;

/// The answer that a client receives.
#[derive(Clone, Copy)]
pub(super) enum Gets {
    /// The outcome of this run.
    Outcome(&'static str),
    Pending,
    Unknown,
    Reused,
    Unavailable,
    Refused(u16, &'static str),
    Nothing,
}

#[derive(Clone)]
pub(super) struct Case {
    pub(super) terms: Terms,
    pub(super) history: History,
}

pub(super) fn terms(policy: Policy) -> Terms {
    Terms {
        policy,
        lease: Duration::from_millis(LEASE),
        healed_at: HEALED * 1_000,
        abandons: false,
        forgets: false,
        survivors: false,
        expires: false,
        settle: Duration::from_millis(SETTLE),
    }
}

pub(super) fn under(policy: Policy) -> Case {
    Case { terms: terms(policy), history: History::default() }
}

pub(super) fn hold() -> Case {
    under(Policy::Hold)
}

pub(super) fn retry() -> Case {
    under(Policy::Retry)
}

pub(super) fn transactional() -> Case {
    under(Policy::Transactional)
}

impl Case {
    /// Adds a run that starts at the time of its fence, as the next attempt of intent 0.
    pub(super) fn starts(self, run: &str, fence: u64) -> Self {
        let attempt = 1 + self.history.steps.iter().filter(|step| step.what == What::Start).count();
        self.step(What::Start, run, fence, fence, attempt as u32, 0)
    }

    /// Gives the last run another intent.
    pub(super) fn with_intent(mut self, intent: u32) -> Self {
        self.last_step().intent = intent;
        self
    }

    /// Gives the last run another attempt.
    pub(super) fn with_attempt(mut self, attempt: u32) -> Self {
        self.last_step().attempt = attempt;
        self
    }

    pub(super) fn effect(mut self, run: &str) -> Self {
        let effect = Effect { caller: "ann".into(), key: "k".into(), run: run.into() };
        self.history.effects.push(effect);
        self
    }

    /// Adds a run that starts and has its effect.
    pub(super) fn works(self, run: &str, fence: u64) -> Self {
        self.starts(run, fence).effect(run)
    }

    /// Adds the release of the key by a run.
    pub(super) fn releases(self, run: &str, at: u64) -> Self {
        let start = self.start_of(run).expect("it started before").clone();
        self.step(What::Release, run, start.fence / 1_000, at, start.attempt, start.intent)
    }

    pub(super) fn asks(self, when: Range<u64>, gets: Gets) -> Self {
        self.request(0, when, false, gets)
    }

    /// Adds a request with another intent.
    pub(super) fn probes(self, intent: u32, when: Range<u64>, gets: Gets) -> Self {
        self.request(intent, when, false, gets)
    }

    /// Adds a request after healing.
    pub(super) fn finally(self, when: Range<u64>, gets: Gets) -> Self {
        self.request(0, HEALED + when.start..HEALED + when.end, true, gets)
    }

    /// Adds two requests that receive the outcome of this run: one during the faults, one after
    /// healing.
    pub(super) fn told(self, run: &'static str) -> Self {
        self.asks(0..5_000, Gets::Outcome(run)).finally(0..10, Gets::Outcome(run))
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Changes the answer to the last request.
    pub(super) fn but(self, change: impl FnOnce(&mut u16, &mut String, &mut Receipt)) -> Self {
        self.with(|case| {
            let last = case.history.requests.last_mut().expect("a request");
            let Answer::Outcome { status, digest, body, .. } = &mut last.answer else {
                panic!("the last request got no outcome");
            };
            change(status, digest, body);
        })
    }

    pub(super) fn start_of(&self, run: &str) -> Option<&Step> {
        self.history.steps.iter().find(|step| step.run == run && step.what == What::Start)
    }

    /// Checks that exactly these kinds of violations are reported.
    #[track_caller]
    pub(super) fn finds(self, kinds: &[Kind]) {
        let verdict = check(&self.terms, &self.history);
        let found: Vec<Kind> = verdict.violations.iter().map(|violation| violation.kind).collect();
        let stories: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found, kinds, "{stories:#?}");
    }

    #[track_caller]
    pub(super) fn passes(self) {
        self.finds(&[]);
    }

    fn last_step(&mut self) -> &mut Step {
        self.history.steps.last_mut().expect("a step")
    }

    fn step(mut self, what: What, run: &str, fence: u64, at: u64, attempt: u32, intent: u32) -> Self {
        let (at, fence) = (at * 1_000, fence * 1_000);
        let (caller, key, run) = ("ann".into(), "k".into(), run.into());
        self.history.steps.push(Step { what, at, caller, key, intent, run, fence, attempt });
        self
    }

    fn request(mut self, intent: u32, when: Range<u64>, after: bool, gets: Gets) -> Self {
        let refused = |status, code: &str| Answer::Refused { status, code: code.into() };
        let answer = match gets {
            Gets::Nothing => Answer::Lost,
            Gets::Pending => refused(409, "idempotency_key_pending"),
            Gets::Unknown => refused(409, "idempotency_outcome_unknown"),
            Gets::Reused => refused(422, "idempotency_key_reused"),
            Gets::Unavailable => refused(503, "store_unavailable"),
            Gets::Refused(status, code) => refused(status, code),
            Gets::Outcome(run) => {
                let start = self.start_of(run);
                let fence = start.map_or(0, |start| start.fence);
                let intent = start.map_or(0, |start| start.intent);
                let body = Receipt { caller: "ann".into(), key: "k".into(), intent, run: run.into(), fence };
                Answer::Outcome { status: 201, replayed: after, digest: run.into(), body }
            }
        };
        let (sent_at, ended_at) = (when.start * 1_000, when.end * 1_000);
        let (caller, key) = ("ann".into(), "k".into());
        self.history.requests.push(Request { caller, key, intent, sent_at, ended_at, after, answer });
        self
    }
}
