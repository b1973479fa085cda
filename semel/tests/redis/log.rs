//! The log of the store.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

thread_local! {
    /// The log of this thread, which is the log of a test with a runtime on one thread.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A writer to the log of its thread.
struct Log;

/// Captures the log from now on. There is one subscriber for all threads: the interest in an event
/// is remembered for the whole process, and a subscriber of one thread would miss events that
/// another thread has met first.
pub(crate) fn capture() {
    static CAPTURED: Once = Once::new();
    CAPTURED.call_once(|| {
        let all = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(|| Log)
            .with_filter(Targets::new().with_target("semel", Level::TRACE));
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(all)).expect("the first");
    });
}

/// The warnings of this thread so far.
pub(crate) fn warnings() -> Vec<String> {
    let logged = LOGGED.with_borrow(|logged| String::from_utf8(logged.clone()).expect("text"));
    logged.lines().filter(|line| line.contains("WARN")).map(ToOwned::to_owned).collect()
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
