//! The minimum rate of a body that is passed on while it arrives.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The minimum rate at which a client must send a body, in bytes per second.
pub(in crate::gateway) const LEAST_RATE: u32 = 256;

/// The progress of a body. Only the time in which the gateway waits for the client counts, because
/// the upstream may be slow.
#[derive(Debug)]
pub(in crate::gateway) struct Drip {
    period: Duration,
    /// The minimum number of bytes per period.
    least: u64,
    came: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Drip {
    /// Measures the rate over each period; the minimum is at least one byte.
    pub(in crate::gateway) fn new(period: Duration) -> Self {
        let least = u128::from(LEAST_RATE) * period.as_millis() / 1_000;
        let least = u64::try_from(least).unwrap_or(u64::MAX).max(1);
        Self { period, least, came: 0, waited: Duration::ZERO, waiting: None }
    }

    /// Counts bytes that have arrived.
    pub(in crate::gateway) fn came(&mut self, bytes: usize) {
        self.came = self.came.saturating_add(bytes as u64);
        let Some((since, _)) = self.waiting.take() else { return };
        self.waited += since.elapsed();
        if self.waited >= self.period {
            // The period has ended without a poll: the upstream took the time, not the client.
            (self.came, self.waited) = (bytes as u64, Duration::ZERO);
        }
    }

    /// Ready when too little has arrived.
    pub(in crate::gateway) fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let left = self.period.saturating_sub(self.waited);
            let (_, timer) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if self.came < self.least {
                return Poll::Ready(());
            }
            (self.came, self.waited, self.waiting) = (0, Duration::ZERO, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{advance, timeout};

    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    async fn is_slow(drip: &mut Drip, within: Duration) -> bool {
        timeout(within, poll_fn(|context| drip.poll_slow(context))).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_is_slow_within_two_periods_and_what_flows_is_not() {
        let mut drip = Drip::new(PERIOD);
        for _ in 0..100 {
            drip.came(256 * 9);
            assert!(!is_slow(&mut drip, Duration::from_secs(7)).await);
        }
        let began = Instant::now();
        while !is_slow(&mut drip, Duration::from_secs(7)).await {
            drip.came(1);
        }
        assert!(began.elapsed() <= 2 * PERIOD, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_takes_its_time_makes_no_client_slow() {
        let mut drip = Drip::new(PERIOD);
        for _ in 0..100 {
            advance(PERIOD).await;
            drip.came(10);
            assert!(!is_slow(&mut drip, Duration::from_millis(100)).await);
        }
    }
}
