//! The share of repeats among the recent claims.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of claims over which the share is taken: each new one counts one part of it.
const CLAIMS: u32 = 64;
/// The number for "all claims are repeats".
const ALL: u32 = 1 << 16;
/// The share from which repeats are frequent.
const FREQUENT: u32 = ALL / 8;

/// A moving average. It is no exact count: of two claims at the same moment one may be lost.
#[derive(Default)]
pub(super) struct Repeats(AtomicU32);

impl Repeats {
    /// Counts a claim.
    pub(super) fn count(&self, is_repeat: bool) {
        let share = self.0.load(Ordering::Relaxed);
        let new = share - share.div_ceil(CLAIMS) + if is_repeat { ALL / CLAIMS } else { 0 };
        if new != share {
            self.0.store(new, Ordering::Relaxed);
        }
    }

    /// Returns `true` if so many claims are repeats that the hot store is worth asking first.
    pub(super) fn are_frequent(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= FREQUENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_repeats_in_a_row_are_frequent_and_many_new_keys_end_that() {
        let repeats = Repeats::default();
        assert!(!repeats.are_frequent());
        for _ in 0..9 {
            repeats.count(true);
        }
        assert!(repeats.are_frequent());
        for _ in 0..9 {
            repeats.count(false);
        }
        assert!(!repeats.are_frequent());
    }

    #[test]
    fn the_share_stays_within_its_limits() {
        let repeats = Repeats::default();
        for is_repeat in [false, true, false] {
            for _ in 0..10_000 {
                repeats.count(is_repeat);
            }
            assert_eq!(repeats.are_frequent(), is_repeat);
        }
        assert!(repeats.0.into_inner() <= ALL);
    }

    #[test]
    fn a_repeat_in_four_is_frequent_and_one_in_twenty_is_not() {
        for (every, frequent) in [(4, true), (20, false)] {
            let repeats = Repeats::default();
            let mut times = 0;
            for n in 0..10_000 {
                repeats.count(n % every == 0);
                times += u32::from(repeats.are_frequent());
            }
            assert_eq!(times > 9_000, frequent, "one in {every}: {times}");
            assert!(frequent || times < 500, "one in {every}: {times}");
        }
    }
}
