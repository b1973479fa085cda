//! The promises that can be broken, each by its name.

use std::fmt;

/// What was broken. Each says what was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Under `hold` and `transactional` a key has at most one effect, and no run has two.
    SecondEffect,
    /// An outcome that somebody was told has its effect, and an effect has a handler that logged its start.
    EffectMissing,
    /// A replay is equal to the outcome, status and digest, byte for byte.
    ReplayDiffers,
    /// Whoever asks, and whenever, a key has one outcome: that of one run.
    AnswerChanged,
    /// Nobody hears that a key was used for another request unless it was, and the first request never does.
    FalseMismatch,
    /// A key that was used for one request refuses any other, before all else.
    MismatchMissed,
    /// Nobody hears that a key is in use unless another request has it, nor once its outcome has been told.
    FalseConflict,
    /// A client gets the handler's answer, 2xx, or one of the refusals that a fault can cause.
    UnexpectedAnswer,
    /// An outcome that was told once is told again after all faults.
    OutcomeLost,
    /// Under `hold` a handler starts at most once, unless each earlier one said that nothing happened.
    SecondRun,
    /// A handler starts again only when the lease before is over, or was given back.
    EarlyTakeover,
    /// Each grant of a key has a higher fence and attempt than all before it, and starts one run.
    FenceRepeated,
    /// Only the current fence can write: an outcome has the highest fence of all runs, the one its run was given.
    StaleOutcome,
    /// After healing, and a lease, every key that is asked for gets its answer.
    Unsettled,
    /// Every key is asked for once more after healing: a promise of the harness, without which it proves nothing.
    Unasked,
    /// Nobody gets, runs or changes what is another caller's or another key's.
    ForeignBody,
    /// There is no outcome without a run that made it.
    SuccessWithoutRun,
}

impl Kind {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 17] = [
        Self::SecondEffect,
        Self::EffectMissing,
        Self::ReplayDiffers,
        Self::AnswerChanged,
        Self::FalseMismatch,
        Self::MismatchMissed,
        Self::FalseConflict,
        Self::UnexpectedAnswer,
        Self::OutcomeLost,
        Self::SecondRun,
        Self::EarlyTakeover,
        Self::FenceRepeated,
        Self::StaleOutcome,
        Self::Unsettled,
        Self::Unasked,
        Self::ForeignBody,
        Self::SuccessWithoutRun,
    ];

    /// A word for programs. It does not change.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SecondEffect => "second_effect",
            Self::EffectMissing => "effect_missing",
            Self::ReplayDiffers => "replay_differs",
            Self::AnswerChanged => "answer_changed",
            Self::FalseMismatch => "false_mismatch",
            Self::MismatchMissed => "mismatch_missed",
            Self::FalseConflict => "false_conflict",
            Self::UnexpectedAnswer => "unexpected_answer",
            Self::OutcomeLost => "outcome_lost",
            Self::SecondRun => "second_run",
            Self::EarlyTakeover => "early_takeover",
            Self::FenceRepeated => "fence_repeated",
            Self::StaleOutcome => "stale_outcome",
            Self::Unsettled => "unsettled",
            Self::Unasked => "unasked",
            Self::ForeignBody => "foreign_body",
            Self::SuccessWithoutRun => "success_without_run",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
