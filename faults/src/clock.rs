//! The machine's monotonic clock, which all processes share and which is never set.

use rustix::time::{ClockId, clock_gettime};

/// The current time, in microseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000
}
