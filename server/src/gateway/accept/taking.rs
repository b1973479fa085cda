//! The minimum rate at which a client must read an answer.
//!
//! A recorded answer is held in memory until its client has read it. A client that reads a few
//! bytes now and then could hold the memory of many answers without limit, so any progress is not
//! enough.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The minimum rate at which a client must read available bytes of an answer, in bytes per second.
pub(in crate::gateway) const LEAST_RATE: u32 = 16 << 10;

/// The progress of a client. Only the time in which the server waits for the client counts.
#[derive(Debug)]
pub(in crate::gateway) struct Taking {
    period: Duration,
    /// The minimum number of bytes per period.
    least: u64,
    taken: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Taking {
    /// Measures the rate over each period; the minimum is at least one byte.
    pub(in crate::gateway) fn new(period: Duration) -> Self {
        let least = u128::from(LEAST_RATE) * period.as_millis() / 1_000;
        let least = u64::try_from(least).unwrap_or(u64::MAX).max(1);
        Self { period, least, taken: 0, timer: None }
    }

    /// Counts bytes that the client has read while more are available.
    pub(in crate::gateway) fn took(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Stops the clock: the client has read all that is available.
    pub(in crate::gateway) fn rest(&mut self) {
        self.timer = None;
    }

    /// Ready when the client read too little in a period.
    pub(in crate::gateway) fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { period, least, taken, timer } = self;
        let timer = timer.get_or_insert_with(|| {
            *taken = 0;
            Box::pin(sleep(*period))
        });
        while timer.as_mut().poll(context).is_ready() {
            if *taken < *least {
                return Poll::Ready(());
            }
            *taken = 0;
            timer.as_mut().reset(Instant::now() + *period);
        }
        Poll::Pending
    }
}
