//! A timeout for futures that are mostly ready at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

/// Limits the time of a future; `None` if it takes longer.
///
/// The limit counts from the first poll that is pending: a future that is ready needs no timer and
/// does not read the clock.
pub(crate) fn within<F: Future + Unpin>(limit: Duration, future: F) -> Within<F> {
    Within { future, limit, timer: None }
}

/// A future with a timeout.
pub(crate) struct Within<F> {
    future: F,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { future, limit, timer } = &mut *self;
        if let Poll::Ready(value) = Pin::new(future).poll(context) {
            return Poll::Ready(Some(value));
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep(*limit)));
        // A future that has used up the budget of its task must not hide the timeout.
        pin!(unconstrained(timer)).poll(context).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::Waker;

    use tokio::task::consume_budget;
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_given_up_at_the_limit() {
        let began = Instant::now();
        assert_eq!(within(LIMIT, pending::<()>()).await, None);
        assert!((LIMIT..LIMIT + Duration::from_millis(5)).contains(&began.elapsed()));
        assert_eq!(within(LIMIT, pin!(sleep(LIMIT / 2))).await, Some(()));
    }

    #[tokio::test]
    async fn a_future_that_uses_the_whole_budget_of_its_task_is_given_up_as_well() {
        let limit = Duration::from_millis(20);
        let greedy = pin!(async {
            loop {
                consume_budget().await;
            }
        });
        let began = Instant::now();
        assert_eq!(within::<Pin<&mut dyn Future<Output = ()>>>(limit, greedy).await, None);
        assert!(began.elapsed() < LIMIT);
    }

    #[test]
    fn what_is_ready_needs_no_timer() {
        // This thread has no runtime that could provide a timer.
        let polled = pin!(within(LIMIT, ready(7))).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Some(7)));
    }
}
