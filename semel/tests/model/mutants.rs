//! Small deviations from the protocol, each of which breaks it.

/// One deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    /// A complete is applied to any running attempt.
    CompleteWithoutToken,
    /// A complete matches the token, but not the fence.
    CompleteWithoutFence,
    /// A complete is applied while the lease is alive, whatever its sender.
    CompleteByLease,
    /// A release is applied to any running attempt.
    ReleaseWithoutToken,
    /// A claim that is sent again has a new token.
    TokenPerSend,
    /// A process has one token for all its attempts.
    TokenPerProcess,
    /// A claim that was given up is not voided.
    NoVoid,
    /// A release deletes the record; fences go on rising.
    ReleaseDeletes,
    /// A release deletes the record, and the next one begins with the lowest fence.
    FenceRestarts,
    /// The handler is started although it is not known whether the claim was granted.
    StartOnUnknown,
    /// A running record is purged.
    PurgeRunning,
    /// The client is answered before the outcome is recorded.
    AnswerFirst,
    /// A replace expects neither token nor version.
    ReplaceExpectsNothing,
    /// A replace expects the version but not the token.
    ReplaceExpectsVersionOnly,
    /// A replace carries no `not_after`.
    ReplaceWithoutNotAfter,
    /// A held record expires with its retention, as a lost one does.
    HeldExpires,
    /// Retention counts from the claim, not from the outcome.
    ExpiryFromClaim,
    /// A released record expires while copies of its claim may still arrive.
    ReleasedExpiresEarly,
    /// A claim takes over by its own policy, whatever that of the record is.
    TakeoverByAsker,
}

impl Mutant {
    pub(crate) fn releases_by_deleting(self) -> bool {
        matches!(self, Self::ReleaseDeletes | Self::FenceRestarts)
    }
}
