//! Random histories that keep every promise, and the same histories with one change that breaks a
//! promise.

mod dice;
mod protocol;
mod changes;

use std::collections::BTreeMap;

use super::case::terms;
use crate::checker::{History, Kind, Policy, Terms, check};
use changes::{CHANGES, Change};
use dice::Dice;

const SEEDS: u64 = 3_000;

/// The seeds to try; `FAULTS_SEED=n` replays one history.
fn seeds() -> std::ops::Range<u64> {
    match std::env::var("FAULTS_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("FAULTS_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    }
}

fn history(seed: u64) -> (Terms, History, Dice) {
    let mut dice = Dice::new(seed);
    let policy = dice.one_of(&[Policy::Hold, Policy::Retry, Policy::Transactional]);
    let forgets = policy == Policy::Transactional && dice.percent(30);
    let terms = Terms { abandons: dice.percent(30), forgets, ..terms(policy) };
    let history = protocol::history(&terms, &mut dice);
    (terms, history, dice)
}

#[test]
fn a_history_that_keeps_every_promise_has_no_violation() {
    let mut seen = crate::checker::Counts::default();
    for seed in seeds() {
        let (terms, history, _) = history(seed);
        let verdict = check(&terms, &history);
        let stories: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
        assert!(stories.is_empty(), "FAULTS_SEED={seed}, {terms:?}: {stories:#?}");
        seen.takeovers += verdict.counts.takeovers;
        seen.replays += verdict.counts.replays;
        seen.conflicts += verdict.counts.conflicts;
        seen.mismatches += verdict.counts.mismatches;
        seen.lost += verdict.counts.lost;
    }
    eprintln!("seeds {:?}: {seen}", seeds());
    let rarest = [seen.takeovers, seen.replays, seen.conflicts, seen.mismatches, seen.lost].into_iter().min();
    assert!(rarest > Some(seeds().count() / 10), "the histories are too tame: {seen}");
}

#[test]
fn one_thing_changed_is_reported() {
    let mut reported: BTreeMap<Kind, usize> = BTreeMap::new();
    for seed in seeds() {
        for (number, Change { kind, make }) in CHANGES.iter().enumerate() {
            let (terms, mut history, mut dice) = history(seed);
            if !make(&terms, &mut history, &mut dice) {
                continue;
            }
            let verdict = check(&terms, &history);
            let kinds: Vec<Kind> = verdict.violations.iter().map(|violation| violation.kind).collect();
            assert!(
                kinds.contains(kind),
                "FAULTS_SEED={seed}, change {number}, {terms:?}: {kind} was not found, but {kinds:?}"
            );
            *reported.entry(*kind).or_default() += 1;
        }
    }
    eprintln!("seeds {:?}: {reported:?}", seeds());
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !reported.contains_key(kind)).collect();
    assert!(std::env::var("FAULTS_SEED").is_ok() || missing.is_empty(), "no history for {missing:?}");
}
