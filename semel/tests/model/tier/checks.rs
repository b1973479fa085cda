//! The properties of the tier, and the deviations that are found.

use stateright::{Checker, HasDiscoveries, Model};

use super::{Mutant, Tier};

const HOLD: Tier = Tier {
    requests: 4,
    takeover: false,
    crashes: 1,
    expiries: 1,
    losses: 2,
    relapses: 1,
    forgets: 0,
    purges: 0,
    mutant: None,
};
const RETRY: Tier = Tier { takeover: true, ..HOLD };
/// A relapse would restore a forgotten entry; that is documented, and not promised.
const FORGETTING: Tier = Tier { forgets: 1, relapses: 0, ..HOLD };
const PURGING: Tier = Tier { purges: 1, relapses: 0, ..HOLD };

fn holds(tier: Tier, states: usize) {
    let checker = tier.checker().threads(2).spawn_bfs().join();
    if let Some(path) = checker.discovery("every promise holds") {
        panic!("{:?} after\n{path}", tier.violation(path.last_state()));
    }
    assert_eq!(checker.unique_state_count(), states, "as many states as the tier has");
}

fn mutant(mutant: Mutant, tier: Tier, violation: &str) {
    let tier = Tier { mutant: Some(mutant), ..tier };
    let checker = tier.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path = checker.discovery("every promise holds").expect("the violation is found");
    assert_eq!(tier.violation(path.last_state()), Some(violation));
}

#[test]
fn a_tier_holds_under_hold() {
    holds(HOLD, 16_368);
}

#[test]
fn a_tier_holds_under_retry() {
    holds(RETRY, 32_920);
}

#[test]
fn a_tier_holds_when_keys_are_forgotten() {
    holds(FORGETTING, 348_812);
}

#[test]
fn a_tier_holds_when_retention_is_over() {
    holds(PURGING, 34_504);
}

#[test]
fn a_hot_store_that_grants_is_found_out() {
    mutant(Mutant::HotGrants, HOLD, "handler ran twice under hold");
}

#[test]
fn a_hot_store_that_is_believed_about_who_runs_is_found_out() {
    mutant(Mutant::HotRunningBelieved, HOLD, "a key is refused that nobody runs");
}

#[test]
fn a_hot_store_that_is_written_first_is_found_out() {
    mutant(Mutant::HotWrittenFirst, HOLD, "client was told an outcome that is not recorded");
}

#[test]
fn a_key_that_is_buried_without_a_trace_is_found_out() {
    mutant(Mutant::BuriedWithoutTrace, FORGETTING, "client was told an outcome of an earlier life");
}

#[test]
fn a_key_that_is_buried_before_it_is_forgotten_is_found_out() {
    mutant(Mutant::BuriedFirst, FORGETTING, "client was told an outcome of an earlier life");
}

#[test]
fn an_operator_whose_second_try_is_left_alone_is_found_out() {
    mutant(Mutant::MovedIsLeftAlone, FORGETTING, "client was told an outcome of an earlier life");
}

#[test]
fn an_outcome_that_is_planted_at_any_time_is_found_out() {
    mutant(Mutant::PlantedAnyTime, FORGETTING, "client was told an outcome of an earlier life");
}

#[test]
fn a_memory_that_gives_way_to_an_older_one_is_found_out() {
    mutant(Mutant::RankIgnored, FORGETTING, "client was told an outcome of an earlier life");
}

#[test]
fn a_hot_store_that_remembers_for_longer_is_found_out() {
    mutant(Mutant::HotOutlivesDurable, PURGING, "client was told an outcome of an earlier life");
}
