//! Finding out what a lost attempt did.

use std::future::Future;

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::Once;
use crate::protocol::answer::Held;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::outcome::Outcome;

/// What is known about a lost attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconciled {
    /// It happened, with this outcome: it is recorded and replayed.
    Happened(Outcome),
    /// It did not happen and will not: the work runs.
    DidNotHappen,
    /// Nobody knows: the key stays held.
    Unknown,
}

/// Is asked about a held key before its caller is refused.
///
/// Ask the place where the effect would be: the payment provider, the mail log. The answer must
/// hold for good. An owner that was only slow may still be at work when its lease is over; whoever
/// says "did not happen" while it lives lets the work run twice. A closure `Fn(Key, Intent, Held)
/// -> impl Future<Output = Reconciled>` is one.
#[async_trait]
pub trait Reconcile: Send + Sync + 'static {
    /// What became of this attempt.
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
    /// Asks the hook about a lost attempt, for as long as a lease at most.
    pub(super) async fn find_out(&self, key: &Key, intent: &Intent, held: Held) -> Reconciled {
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
