//! The kinds of violations, each with its promise.

use std::fmt;

/// A broken promise. Each variant states the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Under `hold` and `transactional` a key has at most one effect, and no run has two.
    SecondEffect,
    /// An outcome that a client received has its effect, and an effect has a handler that logged
    /// its start.
    EffectMissing,
    /// A replay is equal to the outcome, status and digest, byte for byte.
    ReplayDiffers,
    /// A key has one outcome, that of one run, for every client at any time.
    AnswerChanged,
    /// A request is refused as a mismatch only if the key was used for another request, and the
    /// first request never is.
    FalseMismatch,
    /// A key that was used for one request refuses any other, before all other checks.
    MismatchMissed,
    /// A request is refused as a conflict only while another request has the key, and never after a
    /// client received the outcome.
    FalseConflict,
    /// A client gets the handler's answer, 2xx, or one of the refusals that a fault can cause.
    UnexpectedAnswer,
    /// An outcome that a client received once is still received after all faults.
    OutcomeLost,
    /// Under `hold` a handler starts at most once, unless each earlier one said that nothing happened.
    SecondRun,
    /// A handler starts again only when the previous lease is over, or was released.
    EarlyTakeover,
    /// Each grant of a key has a higher fence and attempt than all previous ones, and starts one
    /// run.
    FenceRepeated,
    /// Only the current fence can write: an outcome has the highest fence of all runs, which is the
    /// fence of its run.
    StaleOutcome,
    /// After healing and one lease, every key that is requested gets its answer.
    Unsettled,
    /// Every key is requested once more after healing: a promise of the harness, without which it
    /// proves nothing.
    Unasked,
    /// No client or run gets or changes data of another caller or another key.
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

    /// A code for programs, which does not change.
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
