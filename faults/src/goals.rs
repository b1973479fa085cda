//! The number of faults that a run needs to be meaningful.

use crate::nemesis::FAILPOINTS;
use crate::tally::{REQUESTS, Tally};

/// The required faults, by the beginning of their names, and their minimum numbers.
type Goals = &'static [(&'static str, u64)];

const SHORT: Goals = &[
    ("kill ", 50),
    ("pause of a process", 1),
    ("move of the application's clock", 1),
    ("postgres: ", 5),
    ("postgres: promotion", 1),
    ("redis: ", 5),
    ("redis: failover", 1),
    ("cut ", 500),
    (REQUESTS, 100_000),
];

const LONG: Goals = &[
    ("kill ", 1_000),
    ("postgres: kill and restart", 100),
    ("postgres: promotion", 20),
    ("redis: failover", 20),
    ("cut ", 10_000),
    (REQUESTS, 5_000_000),
];

/// The faults that have not happened often enough yet.
pub(crate) fn missing(long: bool, tally: &Tally) -> Vec<String> {
    let goals = if long { LONG } else { SHORT };
    let points: Vec<String> = FAILPOINTS.iter().map(|point| format!("kill at {point}")).collect();
    let points = points.iter().map(|point| (point.as_str(), 1));
    let goals = goals.iter().copied().chain(points);
    let missed = goals.filter(|(name, least)| tally.of(name) < *least);
    missed.map(|(name, least)| format!("{name}: {} of {least}", tally.of(name))).collect()
}

#[cfg(test)]
mod facts {
    use super::*;

    fn enough() -> Tally {
        let mut tally = Tally::default();
        for point in FAILPOINTS {
            tally.add(&format!("kill at {point}"), 5);
        }
        for name in [
            "postgres: promotion",
            "redis: failover",
            "pause of a process",
            "move of the application's clock",
        ] {
            tally.add(name, 5);
        }
        tally.add("cut before a client's answer", 500);
        tally.add(REQUESTS, 100_000);
        tally
    }

    #[test]
    fn a_run_says_something_when_enough_has_happened() {
        assert_eq!(missing(false, &enough()), [""; 0]);
        assert_eq!(missing(true, &enough()).len(), 6);
    }

    #[test]
    fn a_failpoint_that_was_never_reached_is_named() {
        let mut tally = Tally::default();
        for (name, count) in enough().iter().filter(|(name, _)| *name != "kill at granted") {
            tally.add(name, count);
        }
        assert_eq!(missing(false, &tally), ["kill at granted: 0 of 1"]);
    }
}
