//! The list of all promises, and their check.

use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::*;
use crate::store::backend::Backend;

/// One promise of the contract, to be checked on a [`Subject`] or on the [`Backend`] below it.
pub struct Promise<On> {
    /// The name of the promise in docs/protocol.md.
    pub name: &'static str,
    check: fn(On) -> Boxed<()>,
}

macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        &[$(Promise { name: stringify!($name), check: |on| Box::pin(async move { $name(&*on).await }) }),+]
    };
}

/// The promises of a backend's primitives, in the order of docs/protocol.md.
pub const PRIMITIVES: &[Promise<Arc<dyn Backend>>] = promises![
    an_open_shows_what_is_there,
    a_late_open_creates_nothing,
    a_replace_writes_the_whole_record,
    a_replace_keeps_the_note_until_a_new_life,
    a_replace_can_record_an_outcome,
    a_complete_keeps_the_note,
    a_replace_expects_the_version,
    a_replace_expects_the_token,
    a_late_replace_changes_nothing,
    a_replace_creates_nothing,
    one_of_many_replaces_is_applied,
    items_of_one_call_are_on_their_own,
];

/// The promises of a store, in the order of docs/protocol.md.
pub const PROMISES: &[Promise<Arc<Subject>>] = promises![
    a_new_key_is_granted,
    a_done_key_is_replayed,
    a_running_key_is_running,
    another_intent_is_a_mismatch,
    a_mismatch_says_with_what,
    a_mismatch_does_not_poison,
    a_claim_sent_again_is_granted_with_the_same_fence,
    a_late_claim_is_refused,
    a_released_key_is_granted_to_another_token,
    a_released_token_never_claims_again,
    a_void_frees_an_unanswered_claim,
    a_voided_token_never_claims_again,
    a_void_touches_no_other_token,
    a_void_before_not_after_is_early,
    a_lost_attempt_is_held_for_a_claim_without_takeover,
    a_lost_attempt_is_taken_over_when_asked_to,
    a_lost_attempt_under_hold_is_not_taken_over,
    a_takeover_brings_its_own_policy_and_retention,
    a_takeover_of_one_fence_leaves_others_alone,
    one_of_many_claims_is_granted,
    one_of_many_takeovers_is_granted,
    scopes_keep_keys_apart,
    fences_rise_over_release_takeover_and_prune,
    a_dropped_claim_can_be_sent_again,
    only_token_and_fence_together_write,
    a_stale_lease_cannot_write,
    a_late_owner_may_complete,
    a_complete_sent_again_is_repeated,
    an_outcome_never_changes,
    a_release_sent_again_is_repeated,
    a_renewal_extends_the_lease,
    a_late_renewal_revives_the_lease,
    an_abandoned_key_is_over_at_once,
    a_key_can_be_held_whatever_its_policy,
    a_write_without_a_record_is_missing,
    one_of_owner_and_takeover_records,
    an_expired_record_counts_as_absent,
    an_outcome_is_replayed_for_its_whole_retention,
    a_released_record_is_kept_for_late_copies_only,
    a_resolved_outcome_is_replayed_for_its_whole_retention,
    a_held_key_never_expires,
    a_lost_key_expires_with_its_retention,
    a_live_lease_outlives_retention,
    prune_removes_what_is_over_and_nothing_else,
    prune_is_bounded_and_keeps_to_its_realm,
    prune_keeps_what_expired_after_its_cutoff,
    a_record_tells_what_was_asked,
    an_outcome_is_kept_byte_for_byte,
    an_outcome_without_body_stays_without,
    a_large_outcome_is_kept,
    find_many_answers_in_order,
    list_pages_through_all_that_match,
    list_filters_by_what_a_record_says,
    stale_lists_held_and_lost_keys_only,
    stats_count_by_phase,
    a_resolved_key_is_replayed,
    a_reset_key_runs_again,
    a_forgotten_key_is_new,
    a_change_with_another_fence_changes_nothing,
    a_change_never_touches_a_live_lease,
    a_change_is_kept_with_its_reason,
    a_secret_is_the_same_for_all,
];

/// The promises that a store did not keep.
#[derive(Debug)]
pub struct Broken(Vec<(&'static str, String)>);

impl Broken {
    /// The names of the broken promises.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} promises broken", self.0.len())?;
        self.0.iter().try_for_each(|(name, why)| write!(f, "\n  {name}: {why}"))
    }
}

impl std::error::Error for Broken {}

/// Checks every promise of a store, one after the other unless set otherwise, and names the broken
/// ones.
///
/// # Errors
/// [`Broken`] if there are any.
pub async fn check(on: &Subject) -> Result<(), Broken> {
    check_each(PROMISES, &Arc::new(on.clone()), on.at_once).await
}

/// Checks every promise of the primitives of a backend.
///
/// # Errors
/// [`Broken`] if there are any.
pub async fn check_backend(on: impl Backend) -> Result<(), Broken> {
    let on: Arc<dyn Backend> = Arc::new(on);
    check_each(PRIMITIVES, &on, 1).await
}

async fn check_each<On: Clone>(promises: &[Promise<On>], on: &On, at_once: usize) -> Result<(), Broken> {
    let check = |promise: &Promise<On>| {
        let (name, checked) = (promise.name, (promise.check)(on.clone()));
        async move {
            let error = tokio::spawn(checked).await.err()?;
            let why = error.try_into_panic().map_or_else(|error| error.to_string(), |panic| message(&*panic));
            Some((name, why))
        }
    };
    // A check that counts the whole store runs alone.
    let (counts, others): (Vec<_>, Vec<_>) =
        promises.iter().partition(|promise| promise.name == "stats_count_by_phase");
    let alone = stream::iter(counts).map(check).buffered(1);
    let together = stream::iter(others).map(check).buffered(at_once);
    let broken: Vec<_> = alone.chain(together).filter_map(std::future::ready).collect().await;
    if broken.is_empty() { Ok(()) } else { Err(Broken(broken)) }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked").to_owned()
}
