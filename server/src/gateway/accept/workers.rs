//! The threads that serve connections.

use std::thread;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The largest number of threads; with more, the upstream is the bottleneck.
const MAX: usize = 32;

/// One thread for each processor, with a runtime of its own. A connection stays on its thread,
/// together with its requests and the upstream connections that they use, so that no request wakes
/// another thread.
pub(in crate::gateway) struct Workers {
    handles: Vec<Handle>,
    /// The guard that stops the threads.
    _stop: DropGuard,
}

impl Workers {
    /// # Errors
    /// If the system cannot start a thread.
    pub(in crate::gateway) fn start() -> Result<Self> {
        let stop = CancellationToken::new();
        let count = thread::available_parallelism().map_or(1, usize::from).min(MAX);
        let start = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, stopped) = (runtime.handle().clone(), stop.clone());
            let serve = move || runtime.block_on(stopped.cancelled());
            thread::Builder::new().name("semel-serve".to_owned()).spawn(serve)?;
            Ok(handle)
        };
        let handles = (0..count).map(start).collect::<std::io::Result<_>>();
        Ok(Self { handles: handles.context("could not start a thread")?, _stop: stop.drop_guard() })
    }

    pub(in crate::gateway) fn handles(&self) -> &[Handle] {
        &self.handles
    }
}
