//! The contract of every store, which the conformance suite checks.

use std::time::Duration;

use semel::admin::Inspect;
use semel::store::conformance::{self, Subject};

/// Checks every promise of a store. The peer has the same records, like another process.
pub async fn keeps_every_promise(store: impl Inspect, peer: impl Inspect) {
    // A slow machine must not end a lease within a step.
    let subject =
        Subject::new(store).with_peer(peer).with_lease(Duration::from_secs(3)).with_checks_at_once(64);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}
