//! The secret from which principals are derived, as a process knows it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::http::request::scope::Digest;
use crate::http::request::seal::{self, PrincipalKey};
use crate::store::Store;
use crate::words::error::StoreError;

/// The time after which the store is asked whether it still keeps the same secret. It is another
/// one only if the store has lost its data: then all processes should continue with the same one.
const CHECK_AFTER: Duration = Duration::from_secs(10);

/// The smallest size of a secret of the configuration: a shorter one can be guessed.
const MIN_BYTES: usize = 16;

/// The number of times that a secret is sealed again when other processes do so at the same time.
const TRIES: u32 = 4;

/// The secret of the principals. Clones share their knowledge.
#[derive(Clone, Default)]
pub(in crate::http) struct PrincipalSecret {
    /// The secrets of the configuration: the first seals, all open.
    configured: Arc<[Box<[u8]>]>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    known: RwLock<Option<Known>>,
    /// The lock of the task that asks the store, with the moment of the last failure.
    asking: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Known {
    digest: Digest,
    kept: Vec<u8>,
    checked: Instant,
}

impl PrincipalSecret {
    pub(in crate::http) fn configured(secrets: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        Self { configured: secrets.into_iter().collect(), shared: Arc::default() }
    }

    /// The digest, if it is known without asking the store. If that was long ago, the store is
    /// asked in the background.
    pub(in crate::http) fn known(&self, store: &Arc<dyn Store>) -> Option<Digest> {
        let known = self.shared.known.read().clone()?;
        if known.checked.elapsed() > CHECK_AFTER {
            self.check_in_background(store);
        }
        Some(known.digest)
    }

    /// The digest, by the secret of the store; if there is none, one is created.
    pub(in crate::http) async fn digest(&self, store: &Arc<dyn Store>) -> Result<Digest, StoreError> {
        if let Some(digest) = self.known(store) {
            return Ok(digest);
        }
        let began = Instant::now();
        let mut asking = self.shared.asking.lock().await;
        if let Some(digest) = self.known(store) {
            return Ok(digest);
        }
        // Callers that wait for a store that does not answer do not ask it one after the other.
        if asking.is_some_and(|failed| failed > began) {
            return Err(StoreError::unavailable("the secret of the principals could not be read"));
        }
        self.ask(store, &mut asking).await
    }

    fn check_in_background(&self, store: &Arc<dyn Store>) {
        if self.shared.asking.try_lock().is_err() {
            return;
        }
        let (secret, store) = (self.clone(), Arc::clone(store));
        tokio::spawn(async move {
            let Ok(mut asking) = secret.shared.asking.try_lock() else { return };
            if let Err(error) = secret.ask(&store, &mut asking).await {
                tracing::debug!(%error, "the secret of the principals could not be checked");
                // The known secret is correct unless the store has lost its data.
                if let Some(known) = &mut *secret.shared.known.write() {
                    known.checked = Instant::now();
                }
            }
        });
    }

    async fn ask(
        &self,
        store: &Arc<dyn Store>,
        asking: &mut MutexGuard<'_, Option<Instant>>,
    ) -> Result<Digest, StoreError> {
        match self.learn(store).await {
            Ok(known) => {
                let digest = known.digest.clone();
                *self.shared.known.write() = Some(known);
                Ok(digest)
            }
            Err(error) => {
                **asking = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// Agrees with the store on one secret, and seals it as configured.
    async fn learn(&self, store: &Arc<dyn Store>) -> Result<Known, StoreError> {
        if self.configured.iter().any(|secret| secret.len() < MIN_BYTES) {
            return Err(StoreError::refused(format!(
                "a principal secret of the configuration is shorter than {MIN_BYTES} bytes: use at least {MIN_BYTES} random ones"
            )));
        }
        let first = self.configured.first().map(AsRef::as_ref);
        let before = self.shared.known.read().clone();
        // A store that has lost the secret gets the same one back.
        let offer = before.map_or_else(|| seal::seal(random(), first), |known| known.kept);
        let mut kept = store.keep_secret(None, &offer).await?;
        for _ in 0..TRIES {
            let unsealed = seal::unseal(&kept, &self.configured)
                .map_err(|error| StoreError::refused(error.to_string()))?;
            if !unsealed.needs_sealing {
                let digest = Digest::new(&unsealed.key);
                return Ok(Known { digest, kept, checked: Instant::now() });
            }
            kept = store.keep_secret(Some(&kept), &seal::seal(unsealed.key, first)).await?;
        }
        Err(StoreError::unavailable(
            "other processes seal the secret of the principals with other secrets than this one",
        ))
    }
}

fn random() -> PrincipalKey {
    rand::random()
}

impl fmt::Debug for PrincipalSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalSecret").field("configured", &self.configured.len()).finish_non_exhaustive()
    }
}
