//! A run that is finished even if nobody waits for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::fault;

/// A future that runs with its caller for as long as that waits. Dropped before its end, it goes on on a task of its
/// own: most callers stay, and need no task.
pub(crate) struct Carried<T: Send + 'static> {
    /// Gone when it has ended, or panicked.
    run: Option<BoxFuture<'static, T>>,
    runtime: Handle,
    /// Closed when the caller is gone, for those who wait only for its sake.
    _here: oneshot::Receiver<()>,
}

impl<T: Send + 'static> Carried<T> {
    /// What closes when the caller is gone comes along.
    pub(crate) fn new(run: impl Future<Output = T> + Send + 'static, here: oneshot::Receiver<()>) -> Self {
        Self { run: Some(Box::pin(run)), runtime: Handle::current(), _here: here }
    }
}

impl<T: Send + 'static> Future for Carried<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Self { run, runtime, .. } = &mut *self;
        let _within = runtime.enter();
        let Some(mut running) = run.take() else { return Poll::Pending };
        let polled = running.as_mut().poll(context);
        if polled.is_pending() {
            *run = Some(running);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take()
            && !fault::makes("release_on_drop")
        {
            self.runtime.spawn(run);
        }
    }
}
