//! A run that goes on to its end even if its caller is dropped.
//!
//! Plain code would spawn a task for each run. On a runtime of one thread, that makes a repeat
//! through the layer a tenth longer, by 4,100 instructions of 36,500, and a new key by 3,400 of
//! 46,400 (`cargo xtask instructions`, with `tokio::spawn` in [`Carried::new`]). On several threads,
//! each run also wakes another one, and its answer wakes the caller.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A future that is polled by its caller for as long as the caller waits. If it is dropped before
/// its end, it moves to a task of its own. Most callers wait to the end, and need no task.
pub(crate) struct Carried<T: Send + 'static> {
    /// The future, taken out when it has ended or panicked.
    run: Option<BoxFuture<'static, T>>,
    runtime: Handle,
    /// The receiver that closes when the caller leaves, for parts that wait only for the caller.
    _here: oneshot::Receiver<()>,
}

impl<T: Send + 'static> Carried<T> {
    /// A run with the receiver that closes when the caller leaves.
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
        if let Some(run) = self.run.take() {
            self.runtime.spawn(run);
        }
    }
}
