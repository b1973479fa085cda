//! The circuit breaker in front of a hot store: it skips a store that fails, and tries it again
//! before long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::backoff::Backoff;

/// The number of failures in a row that open the circuit breaker.
const ENOUGH: u32 = 3;
/// The pauses between the tries.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), MAX_PAUSE);
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
    /// The number of tries that have failed.
    tries: u32,
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
        match &mut self.state.lock().aside {
            None => Turn::Ask,
            Some(aside) if now >= aside.next_try => {
                aside.next_try = now + BACKOFF.pause(aside.tries);
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
        let mut state = self.state.lock();
        self.is_well.store(true, Ordering::Relaxed);
        std::mem::take(&mut *state).aside.is_some()
    }

    /// Records a failure of a regular question or of a try. Returns `true` if it opens the circuit
    /// breaker.
    pub(super) fn failed(&self, turn: Turn) -> bool {
        let mut state = self.state.lock();
        self.is_well.store(false, Ordering::Relaxed);
        let State { failures, aside } = &mut *state;
        *failures += 1;
        match aside {
            None if *failures >= ENOUGH => {
                *aside = Some(Aside { next_try: Instant::now() + BACKOFF.pause(0), tries: 0 });
                return true;
            }
            Some(aside) if turn == Turn::Try => {
                aside.tries += 1;
                aside.next_try = Instant::now() + BACKOFF.pause(aside.tries);
            }
            // Failures of questions from before the circuit breaker opened are not counted.
            None | Some(_) => {}
        }
        false
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
            advance(BACKOFF.pause(0)).await;
            assert_eq!(breaker.turn(), Turn::Try);
        }
    }
}
