//! The model of the protocol, searched over all its states.
//!
//! The steps are those of the protocol over one key: claims as open and replace, messages that are
//! resent, late or lost, crashes, a lease that is over at any moment, purge, reconcile. The effect
//! of a message on the store and the meaning of its answer are the production code: `slot`,
//! `decide`, `verbs`. Every small deviation must be found.
//!
//! Configurations of up to three million states are searched completely here; `SEMEL_MODEL=all`
//! searches all.
//!
//! - `protocol`: the steps. `state`: a state. `store`: the store of the model.
//! - `mutants`: deviations that break the protocol.
//! - `tier`: a model of its own for two stores.

mod mutants;
mod protocol;
mod state;
mod store;
mod tier;

use stateright::{Checker, HasDiscoveries, Model};

use mutants::Mutant;
use protocol::{Config, HOLD, Reconcile};

const RETRY: Config = Config { takeover: true, ..HOLD };
const RETRY_FENCED: Config = Config { fenced: true, ..RETRY };
const TRANSACTIONAL: Config = Config { transactional: true, ..RETRY };
/// The first request is under `hold`, and the remaining ones would take over.
const MIXED: Config = Config { mixed: true, ..RETRY };
const THREE_RETRY_PURGE: Config =
    Config { requests: 3, sends: 1, retentions: 1, crashes: 0, expiries: 1, clean_failures: false, ..RETRY };

/// Searches all states and expects no violation. The number of states is known: fewer would mean
/// missing steps.
fn holds(config: Config, states: usize) {
    let checker = config.checker().threads(2).spawn_bfs().join();
    if let Some(path) = checker.discovery("every promise holds") {
        panic!("{:?} after\n{path}", config.violation(path.last_state()));
    }
    assert!(checker.is_done(), "the search did not end");
    assert_eq!(checker.unique_state_count(), states, "as many states as the protocol has");
}

/// Like [`holds`], for configurations that take longer than a test run should.
fn holds_in_the_long_run(config: Config, states: usize) {
    if std::env::var("SEMEL_MODEL").is_ok_and(|value| value == "all") {
        holds(config, states);
    } else {
        // A part of the states is searched within seconds; `cargo xtask model` searches the rest.
        let checker = config.checker().threads(2).target_state_count(200_000).spawn_bfs().join();
        let found = checker.discovery("every promise holds");
        assert!(found.is_none(), "{}", found.map(|path| path.to_string()).unwrap_or_default());
    }
}

/// Searches until a violation is found, and expects this one. The search uses one thread, because
/// the first violation must always be the same.
fn breaks(config: Config, violation: &str) {
    let checker = config.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path = checker.discovery("every promise holds").expect("the violation is found");
    assert_eq!(config.violation(path.last_state()), Some(violation));
}

fn mutant(mutant: Mutant, config: Config, violation: &str) {
    breaks(Config { mutant: Some(mutant), ..config }, violation);
}

#[test]
fn hold_holds_for_two_requests() {
    holds(HOLD, 2_640_618);
}

#[test]
fn hold_holds_for_three_requests() {
    holds(Config { requests: 3, sends: 1, expiries: 1, ..HOLD }, 681_887);
}

#[test]
fn retry_holds_for_three_requests_with_fenced_effects() {
    holds(Config { requests: 3, sends: 1, ..RETRY_FENCED }, 2_313_074);
}

#[test]
fn transactional_holds_for_three_requests() {
    holds(Config { requests: 3, sends: 1, ..TRANSACTIONAL }, 2_310_734);
}

#[test]
fn retry_holds_for_three_requests_over_a_purge() {
    holds(THREE_RETRY_PURGE, 1_788_818);
}

#[test]
fn a_released_or_voided_token_is_never_granted_again() {
    holds(Config { watch_retired: true, crashes: 0, expiries: 1, ..HOLD }, 916_356);
}

#[test]
fn hold_holds_with_reconcile_of_dead_owners() {
    holds_in_the_long_run(Config { reconcile: Reconcile::OwnerDead, ..HOLD }, 3_177_070);
}

#[test]
fn hold_holds_for_a_claim_that_would_take_over() {
    holds(MIXED, 2_640_618);
}

#[test]
fn hold_holds_for_claims_that_would_take_over_over_a_retention() {
    holds(
        Config { requests: 3, sends: 1, retentions: 1, expiries: 1, clean_failures: false, ..MIXED },
        4_048_927,
    );
}

#[test]
fn hold_holds_over_a_purge() {
    holds_in_the_long_run(Config { retentions: 1, crashes: 0, ..HOLD }, 7_502_571);
}

#[test]
fn retry_holds_for_two_requests() {
    holds_in_the_long_run(RETRY, 11_480_056);
}

#[test]
fn retry_holds_for_two_requests_with_fenced_effects() {
    holds_in_the_long_run(RETRY_FENCED, 11_489_366);
}

#[test]
fn transactional_holds_for_two_requests() {
    holds_in_the_long_run(TRANSACTIONAL, 11_480_056);
}

// These failures are outside of the promises, and must be reported.

#[test]
fn a_store_that_loses_a_write_breaks_hold() {
    breaks(Config { failovers: 1, ..HOLD }, "client was told an outcome that is not recorded");
}

#[test]
fn a_store_that_loses_a_write_breaks_transactional() {
    breaks(Config { failovers: 1, ..TRANSACTIONAL }, "client was told an outcome that is not recorded");
}

#[test]
fn a_reconcile_while_the_owner_lives_breaks_hold() {
    breaks(Config { reconcile: Reconcile::OwnerAlive, ..HOLD }, "handler ran twice under hold");
}

// Each small deviation must be found.

#[test]
fn a_complete_without_token_is_found_out() {
    mutant(Mutant::CompleteWithoutToken, RETRY_FENCED, "write by one that is not the owner");
}

#[test]
fn a_complete_without_fence_is_found_out() {
    mutant(Mutant::CompleteWithoutFence, RETRY_FENCED, "outcome is not of the effect that stands");
}

#[test]
fn a_complete_guarded_by_the_lease_is_found_out() {
    mutant(Mutant::CompleteByLease, RETRY_FENCED, "write by one that is not the owner");
}

#[test]
fn a_release_without_token_is_found_out() {
    mutant(Mutant::ReleaseWithoutToken, RETRY, "write by one that is not the owner");
}

#[test]
fn a_token_per_send_is_found_out() {
    mutant(Mutant::TokenPerSend, HOLD, "key held although nobody crashed");
}

#[test]
fn a_token_per_process_is_found_out_under_hold() {
    mutant(Mutant::TokenPerProcess, HOLD, "one fence held by two attempts");
}

#[test]
fn a_token_per_process_is_found_out_under_retry() {
    mutant(Mutant::TokenPerProcess, RETRY, "one fence held by two attempts");
}

#[test]
fn a_claim_that_is_not_voided_is_found_out() {
    mutant(Mutant::NoVoid, HOLD, "key held although nobody crashed");
}

#[test]
fn a_release_that_deletes_is_found_out() {
    let config = Config { watch_retired: true, ..HOLD };
    mutant(Mutant::ReleaseDeletes, config, "released or voided token granted again");
}

#[test]
fn a_fence_that_restarts_is_found() {
    mutant(Mutant::FenceRestarts, HOLD, "fence not rising");
}

#[test]
fn a_start_on_an_unknown_claim_is_found_out() {
    mutant(Mutant::StartOnUnknown, HOLD, "handler ran twice under hold");
}

#[test]
fn a_purge_of_running_records_is_found_out() {
    mutant(Mutant::PurgeRunning, Config { retentions: 1, ..HOLD }, "handler ran twice under hold");
}

#[test]
fn an_answer_before_the_record_is_found_out() {
    mutant(Mutant::AnswerFirst, HOLD, "client was told an outcome that is not recorded");
}

#[test]
fn a_replace_that_expects_nothing_is_found_out() {
    mutant(Mutant::ReplaceExpectsNothing, RETRY, "live or done record replaced");
}

#[test]
fn a_replace_that_expects_the_version_only_is_found_out() {
    mutant(Mutant::ReplaceExpectsVersionOnly, THREE_RETRY_PURGE, "live or done record replaced");
}

#[test]
fn a_replace_without_not_after_is_found_out() {
    mutant(Mutant::ReplaceWithoutNotAfter, HOLD, "key held although nobody crashed");
}

#[test]
fn a_held_key_that_expires_is_found_out() {
    mutant(Mutant::HeldExpires, Config { retentions: 1, ..HOLD }, "handler ran twice under hold");
}

#[test]
fn an_expiry_that_counts_from_the_claim_is_found_out() {
    let told_in_vain = "client was told an outcome that is not recorded";
    mutant(Mutant::ExpiryFromClaim, Config { retentions: 1, ..HOLD }, told_in_vain);
}

#[test]
fn a_released_record_that_expires_before_copies_of_its_claim_is_found_out() {
    let config = Config { retentions: 1, watch_retired: true, ..HOLD };
    mutant(Mutant::ReleasedExpiresEarly, config, "released or voided token granted again");
}

#[test]
fn a_takeover_by_the_policy_of_the_asker_is_found_out() {
    mutant(Mutant::TakeoverByAsker, MIXED, "handler ran twice under hold");
}
