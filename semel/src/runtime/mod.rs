//! Wakes and futures: code that exists for speed or for cancellation, kept away from the code that
//! decides. Each file says what plain code would cost.
//!
//! - [`backoff`]: the pauses between tries.
//! - [`carry`]: a future that runs with its caller, and moves to a task of its own if the caller is
//!   dropped.
//! - `waking`: polling a connection without waking the task that is polling it.

pub(crate) mod backoff;
pub(crate) mod carry;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod waking;
