//! Where an upstream stands still until a test lets it go on.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::process::BOUND;

/// Where an upstream stands still until it may go on.
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
    /// Says that it is here, and waits.
    pub(crate) async fn here(&self) {
        self.arrived.add_permits(1);
        self.free.acquire().await.expect("never closed").forget();
    }

    /// Waits until one more is there.
    pub(crate) async fn arrival(&self) {
        let arrival = timeout(BOUND, self.arrived.acquire()).await;
        arrival.expect("it arrives before long").expect("never closed").forget();
    }

    /// Lets one go on.
    pub(crate) fn go(&self) {
        self.free.add_permits(1);
    }
}
