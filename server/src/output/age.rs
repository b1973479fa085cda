//! The age of a moment, for people.

use std::time::Duration;

use semel::Timestamp;

const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// A duration in its largest unit, rounded down: `3m`.
pub(crate) fn age(length: Duration) -> String {
    let seconds = length.as_secs();
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

/// A moment relative to another: `3m ago`, `in 20s`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", age(at.since(now))) } else { format!("{} ago", age(now.since(at))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_its_largest_unit() {
        for (seconds, said) in [(0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (86_400 * 40, "40d")] {
            assert_eq!(age(Duration::from_secs(seconds)), said);
        }
    }

    #[test]
    fn what_is_to_come_is_not_ago() {
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(when(at(10), at(190)), "3m ago");
        assert_eq!(when(at(30), at(10)), "in 20s");
    }
}
