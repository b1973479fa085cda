//! The circuit breaker in front of a hot store: it skips a store that fails, and tries it again
//! before long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The number of failures in a row that open the circuit breaker.
const ENOUGH: u32 = 3;
/// The pause before the next try: it doubles with each failure, up to the longest.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Breaker {
    /// Set if nothing has failed since the last answer, so that the state need not be locked.
    is_well: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of failures in a row.
    failures: u32,
    aside: Option<Aside>,
}

struct Aside {
    next_try: Instant,
    pause: Duration,
}

/// The way in which a caller may use the hot store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The caller asks.
    Ask,
    /// The circuit breaker may close again: this one caller asks, and does not wait for the answer.
    Try,
    /// The caller skips the hot store.
    Aside,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { is_well: AtomicBool::new(true), state: Mutex::default() }
    }

    pub(super) fn turn(&self) -> Turn {
        if self.is_well.load(Ordering::Relaxed) {
            return Turn::Ask;
        }
        let now = Instant::now();
        match &mut self.state().aside {
            None => Turn::Ask,
            Some(aside) if now >= aside.next_try => {
                aside.next_try = now + aside.pause;
                Turn::Try
            }
            Some(_) => Turn::Aside,
        }
    }

    /// Records an answer. Returns `true` if it closes the circuit breaker.
    pub(super) fn succeeded(&self) -> bool {
        if self.is_well.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state();
        self.is_well.store(true, Ordering::Relaxed);
        std::mem::take(&mut *state).aside.is_some()
    }

    /// Records a failure of a regular question or of a try. Returns `true` if it opens the circuit
    /// breaker.
    pub(super) fn failed(&self, turn: Turn) -> bool {
        let mut state = self.state();
        self.is_well.store(false, Ordering::Relaxed);
        let State { failures, aside } = &mut *state;
        *failures += 1;
        match aside {
            None if *failures >= ENOUGH => {
                *aside = Some(Aside { next_try: Instant::now() + MIN_PAUSE, pause: MIN_PAUSE });
                return true;
            }
            Some(aside) if turn == Turn::Try => {
                aside.pause = (aside.pause * 2).min(MAX_PAUSE);
                aside.next_try = Instant::now() + aside.pause;
            }
            // Failures of questions from before the circuit breaker opened are not counted.
            None | Some(_) => {}
        }
        false
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_failing_store_is_skipped_and_tried_again_after_growing_pauses() {
        let breaker = Breaker::new();
        assert!(!breaker.failed(Turn::Ask) && !breaker.failed(Turn::Ask));
        assert_eq!(breaker.turn(), Turn::Ask);
        assert!(breaker.failed(Turn::Ask));
        // Concurrent questions do not extend the pause.
        (0..60).for_each(|_| assert!(!breaker.failed(Turn::Ask)));
        for pause in [100, 200, 400, 800, 1_600, 2_000, 2_000].map(Duration::from_millis) {
            assert_eq!(breaker.turn(), Turn::Aside);
            advance(pause - MOMENT).await;
            assert_eq!(breaker.turn(), Turn::Aside);
            advance(MOMENT).await;
            assert_eq!(breaker.turn(), Turn::Try);
            assert_eq!(breaker.turn(), Turn::Aside, "one is enough to try");
            assert!(!breaker.failed(Turn::Try));
        }
        advance(MAX_PAUSE).await;
        assert_eq!(breaker.turn(), Turn::Try);
        assert!(breaker.succeeded() && !breaker.succeeded());
        assert_eq!(breaker.turn(), Turn::Ask);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_is_a_new_beginning() {
        let breaker = Breaker::new();
        for _ in 0..10 {
            assert!(!breaker.failed(Turn::Ask) && !breaker.failed(Turn::Ask));
            assert!(!breaker.succeeded());
        }
        assert_eq!(breaker.turn(), Turn::Ask);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_is_never_answered_is_followed_by_another() {
        let breaker = Breaker::new();
        (0..3).for_each(|_| _ = breaker.failed(Turn::Ask));
        for _ in 0..3 {
            advance(MIN_PAUSE).await;
            assert_eq!(breaker.turn(), Turn::Try);
        }
    }
}
