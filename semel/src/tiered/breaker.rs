//! Puts aside who fails, and tries again before long.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How many failures in a row are enough.
const ENOUGH: u32 = 3;
/// The pause before the next try: it doubles with each that fails, up to the longest.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Breaker {
    began: Instant,
    /// How many questions in a row have failed.
    failures: AtomicU32,
    /// When the next try is due, in microseconds since the beginning; 0 while all is well.
    next_try: AtomicU64,
}

/// Whether to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Yes.
    Ask,
    /// It is time to find out whether there are answers again: this one caller asks, and waits for nothing.
    Try,
    /// No.
    Aside,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), failures: AtomicU32::new(0), next_try: AtomicU64::new(0) }
    }

    pub(super) fn turn(&self) -> Turn {
        let due = self.next_try.load(Ordering::Relaxed);
        if due == 0 {
            return Turn::Ask;
        }
        let now = self.now();
        let is_mine = now >= due
            && self
                .next_try
                .compare_exchange(due, now + self.pause(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_mine { Turn::Try } else { Turn::Aside }
    }

    /// There was an answer. Says whether that is news.
    pub(super) fn succeeded(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.next_try.swap(0, Ordering::Relaxed) != 0
    }

    /// There was none. Says whether this was the one that made it enough.
    pub(super) fn failed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < ENOUGH {
            return false;
        }
        self.next_try.swap(self.now() + self.pause(), Ordering::Relaxed) == 0
    }

    fn now(&self) -> u64 {
        // Never 0, which means something else.
        self.began.elapsed().as_micros() as u64 + 1
    }

    fn pause(&self) -> u64 {
        let doublings = self.failures.load(Ordering::Relaxed).saturating_sub(ENOUGH).min(10);
        (MIN_PAUSE * (1 << doublings)).min(MAX_PAUSE).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn who_fails_is_put_aside_and_tried_again_ever_more_seldom() {
        let breaker = Breaker::new();
        assert!(!breaker.failed() && !breaker.failed());
        assert_eq!(breaker.turn(), Turn::Ask);
        assert!(breaker.failed());
        for pause in [MIN_PAUSE, MIN_PAUSE * 2, MIN_PAUSE * 4] {
            assert_eq!(breaker.turn(), Turn::Aside);
            advance(pause - Duration::from_micros(10)).await;
            assert_eq!(breaker.turn(), Turn::Aside);
            advance(Duration::from_micros(20)).await;
            assert_eq!(breaker.turn(), Turn::Try);
            assert_eq!(breaker.turn(), Turn::Aside, "one is enough to try");
            assert!(!breaker.failed());
        }
        (0..40).for_each(|_| drop(breaker.failed()));
        advance(MAX_PAUSE + Duration::from_micros(10)).await;
        assert_eq!(breaker.turn(), Turn::Try);
        assert!(breaker.succeeded() && !breaker.succeeded());
        assert_eq!(breaker.turn(), Turn::Ask);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_is_a_new_beginning() {
        let breaker = Breaker::new();
        for _ in 0..10 {
            assert!(!breaker.failed() && !breaker.failed());
            breaker.succeeded();
        }
        assert_eq!(breaker.turn(), Turn::Ask);
    }
}
