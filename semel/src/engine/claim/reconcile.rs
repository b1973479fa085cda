//! The reconcile hook, which finds out what a lost attempt did.

use std::future::Future;

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Once;
use crate::protocol::answer::Held;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::outcome::Outcome;

/// The answer of a reconcile hook about a lost attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconciled {
    /// The effect happened, with this outcome, which is recorded and replayed.
    Happened(Outcome),
    /// The effect did not happen and will not: the work runs.
    DidNotHappen,
    /// The hook cannot tell: the key stays held.
    Unknown,
}

/// A hook that the engine calls for a held key before it refuses the caller.
///
/// The hook asks the system where the effect would be visible, such as the payment provider or the
/// mail log. Its answer must remain true: an owner that was only slow may still be at work when its
/// lease is over, so the answer [`Reconciled::DidNotHappen`] about an owner that still runs lets
/// the work run twice.
///
/// Every closure `Fn(Key, Intent, Held) -> impl Future<Output = Reconciled>` implements this trait.
#[async_trait]
pub trait Reconcile: Send + Sync + 'static {
    /// Finds out what this attempt did.
    async fn reconcile(&self, key: Key, intent: Intent, held: Held) -> Reconciled;
}

#[async_trait]
impl<F, R> Reconcile for F
where
    F: Fn(Key, Intent, Held) -> R + Send + Sync + 'static,
    R: Future<Output = Reconciled> + Send + 'static,
{
    async fn reconcile(&self, key: Key, intent: Intent, held: Held) -> Reconciled {
        self(key, intent, held).await
    }
}

impl Once {
    /// Asks the hook about a lost attempt, for at most the length of a lease.
    pub(super) async fn reconcile(&self, key: &Key, intent: &Intent, held: Held) -> Reconciled {
        let Some(hook) = self.engine.reconcile.clone() else {
            return Reconciled::Unknown;
        };
        let (key, intent) = (key.clone(), intent.clone());
        let asked = tokio::spawn(async move { hook.reconcile(key, intent, held).await });
        match timeout(self.engine.policy.terms().lease(), AbortOnDropHandle::new(asked)).await {
            Ok(Ok(known)) => known,
            Ok(Err(error)) => {
                tracing::error!(%error, "the reconcile hook failed; the key stays held");
                Reconciled::Unknown
            }
            Err(_) => {
                tracing::warn!("the reconcile hook did not answer within a lease; the key stays held");
                Reconciled::Unknown
            }
        }
    }
}
