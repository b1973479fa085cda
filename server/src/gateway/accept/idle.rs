//! The idle time of a connection, so that idle connections are closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

/// The time since the last activity.
#[derive(Debug)]
pub(in crate::gateway) struct Idle {
    began: Instant,
    /// The time of the last activity, in milliseconds from the beginning.
    last: AtomicU64,
    /// The number of requests in progress.
    busy: AtomicUsize,
    /// Set when the idle time is limited.
    counts: AtomicBool,
}

impl Idle {
    /// A new connection. Its idle time is unlimited until [`Idle::count`].
    pub(in crate::gateway) fn new() -> Arc<Self> {
        let (last, busy) = (AtomicU64::new(0), AtomicUsize::new(0));
        Arc::new(Self { began: Instant::now(), last, busy, counts: AtomicBool::new(false) })
    }

    /// Limits the idle time from now on.
    pub(in crate::gateway) fn count(&self) {
        self.counts.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Records activity.
    pub(in crate::gateway) fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Marks the connection as active until the guard is dropped.
    pub(in crate::gateway) fn enter(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Waits until there was no activity for this long.
    pub(in crate::gateway) async fn lasts(&self, limit: Duration) {
        loop {
            let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let goes_on = self.busy.load(Ordering::Relaxed) > 0 || !self.counts.load(Ordering::Relaxed);
            let left = if goes_on { limit } else { limit.saturating_sub(last.elapsed()) };
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

/// An activity in progress.
#[derive(Debug)]
pub(in crate::gateway) struct Busy(Arc<Idle>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that records each read as activity.
pub(in crate::gateway) struct Heard<I> {
    io: I,
    idle: Arc<Idle>,
}

impl<I> Heard<I> {
    pub(in crate::gateway) fn new(io: I, idle: Arc<Idle>) -> Self {
        Self { io, idle }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Heard<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_ready() {
            self.idle.touch();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Heard<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_not_idle_and_what_has_ended_is_after_the_limit() {
        let idle = Idle::new();
        assert!(timeout(LIMIT * 9, idle.lasts(LIMIT)).await.is_err(), "it does not count yet");
        idle.count();
        let began = Instant::now();
        idle.lasts(LIMIT).await;
        assert_eq!(began.elapsed().as_secs(), 30);
        let busy = idle.enter();
        assert!(timeout(LIMIT * 9, idle.lasts(LIMIT)).await.is_err());
        drop(busy);
        let began = Instant::now();
        idle.lasts(LIMIT).await;
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}
