//! Waiting for what has to happen sooner or later.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than anything takes, also on a machine that is busy with something else.
pub const LONG: Duration = Duration::from_secs(90);

/// Waits until this holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LONG, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
