//! Exponential backoff.

use std::time::Duration;

/// The pauses between tries: each is twice as long as the one before, up to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after a failure that follows this many others.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(self.longest)
    }

    /// A pause that is shortened at random by up to half, so that callers that failed together do
    /// not try again together.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn jittered(&self, failures: u32) -> Duration {
        self.pause(failures).mul_f64(rand::random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        let pauses = [0, 1, 4, 5, 31, 32, u32::MAX].map(|failures| backoff.pause(failures).as_millis());
        assert_eq!(pauses, [20, 40, 320, 500, 500, 500, 500]);
    }

    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    #[test]
    fn a_jittered_pause_is_at_least_half_as_long() {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        let pauses: Vec<Duration> = (0..100).map(|_| backoff.jittered(1)).collect();
        assert!(pauses.iter().all(|pause| (20..=40).contains(&pause.as_millis())), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
