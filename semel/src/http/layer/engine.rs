//! The options that the layer passes on to its engine, and the end of the engine.

use std::time::Duration;

use super::IdempotencyLayer;
#[cfg(doc)]
use crate::engine::Once;
use crate::engine::policy::{Policy, PolicyError};
use crate::engine::{Ceiling, StoreHealth};
use crate::store::pruner::Pruning;

impl IdempotencyLayer {
    /// Sets the policy: the rule after a crash, lease, retention, wait, and the largest response
    /// that is recorded.
    ///
    /// # Panics
    /// If a setting of the policy breaks a limit, or the store cannot keep the policy's promise:
    /// [`Policy::transactional`] over any store but Postgres. The panic comes when the service starts; [`IdempotencyLayer::try_with_policy`] is
    /// for policies from a configuration.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { once: self.once.with_policy(policy), ..self }
    }

    /// Sets the policy, or returns an error.
    ///
    /// # Errors
    /// [`PolicyError`] if a setting breaks a limit, or the store cannot keep the policy's promise.
    pub fn try_with_policy(self, policy: Policy) -> Result<Self, PolicyError> {
        Ok(Self { once: self.once.try_with_policy(policy)?, ..self })
    }

    /// Limits the attempts that run at a time; see [`Once::with_max_attempts`]. Clones that are
    /// made afterwards share the count, whatever their other options are.
    #[must_use]
    pub fn with_max_attempts(self, limit: usize) -> Self {
        Self { once: self.once.with_max_attempts(limit), ..self }
    }

    /// Limits the unsettled keys of one caller, which is the scope of its keys; see
    /// [`Once::with_max_unsettled_per_caller`].
    #[must_use]
    pub fn with_max_unsettled_per_caller(self, limit: u32) -> Self {
        Self { once: self.once.with_max_unsettled_per_caller(limit), ..self }
    }

    /// Limits the new keys that one caller may use within this time; see
    /// [`Once::with_max_new_per_caller`].
    #[must_use]
    pub fn with_max_new_per_caller(self, limit: u32, within: Duration) -> Self {
        Self { once: self.once.with_max_new_per_caller(limit, within), ..self }
    }

    /// Limits the size of the store; see [`Once::with_ceiling`].
    #[must_use]
    pub fn with_ceiling(self, ceiling: Ceiling) -> Self {
        Self { once: self.once.with_ceiling(ceiling), ..self }
    }

    /// Sets how expired records are removed in the background; see [`Once::with_pruning`].
    #[must_use]
    pub fn with_pruning(self, pruning: Pruning) -> Self {
        Self { once: self.once.with_pruning(pruning), ..self }
    }

    /// Leaves the pruning of the store to another program; see [`Once::without_pruning`].
    #[must_use]
    pub fn without_pruning(self) -> Self {
        Self { once: self.once.without_pruning(), ..self }
    }

    /// The recent results of the writes of this layer and its clones; see [`Once::store_health`].
    pub fn store_health(&self) -> StoreHealth {
        self.once.store_health()
    }

    /// Answers repeats that wait for a running attempt at once, from now on. Call it when a
    /// shutdown begins: a server that waits for its requests in progress would wait for those, too;
    /// see [`Once::end_waits`].
    pub fn end_waits(&self) {
        self.once.end_waits();
    }

    /// Waits until all attempts of this layer and its clones are settled. Call it at shutdown,
    /// after the server has stopped to accept requests; see [`Once::drain`].
    pub async fn drain(&self) {
        self.once.drain().await;
    }
}
