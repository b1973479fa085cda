//! The rate at which the body of a request must arrive.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The time over which the rate is measured.
const PERIOD: Duration = Duration::from_secs(5);

/// The number of bytes of a body that must arrive in each period.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct LeastRate(u64);

impl LeastRate {
    /// The rate; `None` if none is required.
    pub(in crate::http) fn of(bytes_per_second: u32) -> Option<Self> {
        (bytes_per_second > 0).then(|| Self(u64::from(bytes_per_second) * PERIOD.as_secs()))
    }
}

/// The progress of a body. The time counts from the moment at which the reader has to wait: a body
/// that is there needs no timer.
pub(in crate::http) struct Pace {
    least: Option<LeastRate>,
    /// The number of bytes that have arrived in this period.
    came: u64,
    period: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(in crate::http) fn new(least: Option<LeastRate>) -> Self {
        Self { least, came: 0, period: None }
    }

    pub(in crate::http) fn came(&mut self, bytes: usize) {
        self.came += bytes as u64;
    }

    /// Ready when fewer bytes have arrived in a period than required.
    pub(in crate::http) fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(LeastRate(least)) = self.least else { return Poll::Pending };
        let came = &mut self.came;
        let period = self.period.get_or_insert_with(|| {
            *came = 0;
            Box::pin(sleep(PERIOD))
        });
        while period.as_mut().poll(context).is_ready() {
            if *came < least {
                return Poll::Ready(());
            }
            *came = 0;
            period.as_mut().reset(Instant::now() + PERIOD);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    async fn is_slow(pace: &mut Pace, within: Duration) -> bool {
        timeout(within, poll_fn(|context| pace.poll_slow(context))).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_slow_and_one_that_goes_on_is_not() {
        let mut pace = Pace::new(LeastRate::of(100));
        for _ in 0..10 {
            assert!(!is_slow(&mut pace, Duration::from_secs(4)).await);
            pace.came(500);
        }
        let began = Instant::now();
        while !is_slow(&mut pace, Duration::from_secs(1)).await {
            pace.came(90);
        }
        assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_none_is_slow() {
        assert!(!is_slow(&mut Pace::new(LeastRate::of(0)), Duration::from_secs(3_600)).await);
    }
}
