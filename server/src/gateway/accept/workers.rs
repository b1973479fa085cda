//! The threads that serve.

use std::thread;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The most threads: beyond it the upstream is what is slow.
const MAX: usize = 32;

/// A thread for each processor, with a runtime of its own. A connection stays on its thread, and so do its requests and the
/// connections to the upstream that they use: nobody has to wake another thread to pass something on.
pub(in crate::gateway) struct Workers {
    handles: Vec<Handle>,
    /// They end with this.
    _stop: DropGuard,
}

impl Workers {
    /// # Errors
    /// If the system has no thread to give.
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
