//! A point at which an upstream waits until the test lets it continue.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::process::BOUND;

/// A point at which an upstream waits until it may continue.
#[derive(Clone)]
pub(crate) struct Stop {
    arrived: Arc<Semaphore>,
    free: Arc<Semaphore>,
}

impl Default for Stop {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { arrived: none(), free: none() }
    }
}

impl Stop {
    /// Reports the arrival, and waits.
    pub(crate) async fn here(&self) {
        self.arrived.add_permits(1);
        self.free.acquire().await.expect("never closed").forget();
    }

    /// Waits until one more request has arrived.
    pub(crate) async fn arrival(&self) {
        let arrival = timeout(BOUND, self.arrived.acquire()).await;
        arrival.expect("it arrives before long").expect("never closed").forget();
    }

    /// Lets one request continue.
    pub(crate) fn go(&self) {
        self.free.add_permits(1);
    }
}
