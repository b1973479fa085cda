//! Failpoints at which a test ends the process. They exist only in a build with `--cfg
//! semel_faults`, which `cargo xtask faults` makes; in any other build this module does nothing.

#[cfg(not(semel_faults))]
pub(crate) use absent::reach;
#[cfg(semel_faults)]
pub use present::reach;

#[cfg(not(semel_faults))]
mod absent {
    pub(crate) const fn reach(_point: &str) {}
}

#[cfg(semel_faults)]
mod present {
    use std::env;
    use std::process::{Command, id};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::park;

    /// The point at which this process ends, and the pass on which it does so: `granted:37`.
    static END: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let armed = env::var("SEMEL_FAILPOINT").ok()?;
        let (point, passes) = armed.split_once(':')?;
        Some((point.to_owned(), AtomicU32::new(passes.parse().ok()?)))
    });

    /// Records that the process has reached a point, and kills the process there if the point is
    /// chosen. Nothing after it runs on this thread.
    pub fn reach(point: &str) {
        let Some((end, passes)) = &*END else { return };
        if end != point || passes.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let killed = Command::new("kill").args(["-9", &id().to_string()]).status();
        tracing::error!(point, ?killed, "outlived the point at which it was to end");
        loop {
            park();
        }
    }
}
