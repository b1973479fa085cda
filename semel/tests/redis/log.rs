//! What the store logs.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

thread_local! {
    /// What was logged on this thread, which is all that a test with a runtime on one thread does.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of whatever thread it is on.
struct Log;

/// Keeps what is logged from now on. There is one subscriber for all threads: whether an event is wanted is remembered
/// for the whole process, and a subscriber of one thread would miss what another thread has met first.
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
