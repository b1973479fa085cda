//! The rate at which a client must take an answer.
//!
//! An answer that was recorded is held whole until its client has taken it. A client that takes a little of it now and then
//! would hold the memory of many answers for as long as it likes, so a little is not enough.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The least that a client must take of an answer while more of it is ready, in bytes per second.
pub(in crate::gateway) const LEAST_RATE: u32 = 16 << 10;

/// How a client takes an answer. The time counts from when the client has to be waited for.
#[derive(Debug)]
pub(in crate::gateway) struct Taking {
    period: Duration,
    /// How much must be taken in a period.
    least: u64,
    taken: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Taking {
    /// The rate is taken over each period, in which at least a byte must be taken.
    pub(in crate::gateway) fn new(period: Duration) -> Self {
        let least = u128::from(LEAST_RATE) * period.as_millis() / 1_000;
        let least = u64::try_from(least).unwrap_or(u64::MAX).max(1);
        Self { period, least, taken: 0, timer: None }
    }

    /// The client has taken so many bytes, and there are more.
    pub(in crate::gateway) fn took(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// The client is not waited for: it has taken all that is ready.
    pub(in crate::gateway) fn rest(&mut self) {
        self.timer = None;
    }

    /// Ready when too little was taken in a period.
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
