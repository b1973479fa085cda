//! Waiting for an event that has to happen sooner or later.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A time limit longer than any step needs, also on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

/// Waits until this holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LONG, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
