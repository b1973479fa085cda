//! The layer: the options that are set once, for all requests of a route.
//!
//! - [`options`]: the options as data, with their defaults.
//! - `keys`, `requests`, `responses`: the methods that set them.
//! - `engine`: the options that the layer passes on to its engine.

pub(in crate::http) mod options;
mod keys;
mod requests;
mod responses;
mod engine;

use std::sync::Arc;

use tower_layer::Layer;

use self::options::Options;
use super::service::Idempotency;
use crate::engine::Once;
#[cfg(doc)]
use crate::engine::policy::Policy;
use crate::error::Error;
use crate::http::request::scope::By;
use crate::store::Store;

/// Puts [`Idempotency`] around a service.
///
/// It is cheap to clone. Clones share the store, the running attempts and the repeats that wait for
/// them; a clone with other options is the layer of another route. The [module](super) describes
/// its behaviour.
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(in crate::http) once: Once,
    pub(in crate::http) options: Arc<Options>,
}

impl IdempotencyLayer {
    /// A layer over a store, with [`Policy::hold`].
    pub fn new(store: impl Store) -> Self {
        Self::over(Once::new(store))
    }

    /// A layer over an engine, with its policy, its name for this process, and its reconcile hook.
    pub fn over(once: Once) -> Self {
        Self { once, options: Arc::default() }
    }

    /// Reads the secret of the principals from the store, as the first request with credentials
    /// would. Call it at start to detect a secret that cannot be used.
    ///
    /// # Errors
    /// The error of [`IdempotencyLayer::check`]. Refused if a secret from
    /// [`IdempotencyLayer::with_principal_secrets`] is shorter than 16 bytes, or the one in the
    /// store is sealed with another secret; otherwise the error of the store.
    pub async fn prepare(&self) -> Result<(), Error> {
        self.check()?;
        if matches!(self.options.scoping.by, By::Credentials) {
            self.options.secret.digest(self.once.store()).await?;
        }
        Ok(())
    }

    /// Checks the settings that may break a limit: the realm, and the recorded headers. The layer
    /// does so when it is put around a service, and panics if one of them does; a program whose
    /// settings come from a configuration asks here before.
    ///
    /// # Errors
    /// The first setting that breaks a limit.
    pub fn check(&self) -> Result<(), Error> {
        if let Err(error) = &self.options.scoping.realm {
            return Err(error.clone().into());
        }
        Ok(self.options.recorded.check()?)
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(self.clone(), inner)
    }
}

impl std::fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.options.header)
            .field("methods", &self.options.methods)
            .field("required", &self.options.required)
            .field("scoping", &self.options.scoping)
            .field("policy", self.once.policy())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{ETAG, SET_COOKIE};

    use super::*;
    use crate::error::ErrorKind;
    use crate::http::request::credentials::Credential;
    use crate::http::request::scope::Anonymous;
    use crate::store::memory::MemoryStore;

    fn layer() -> IdempotencyLayer {
        IdempotencyLayer::new(MemoryStore::new())
    }

    #[test]
    fn settings_are_checked_together() {
        assert!(layer().with_realm("").with_realm("shop").with_recorded_header(ETAG).check().is_ok());
        let realm = layer().with_realm("").with_anonymous_callers(Anonymous::Share).check().unwrap_err();
        assert_eq!((realm.kind(), realm.to_string().as_str()), (ErrorKind::Invalid, "realm is empty"));
        let header = layer().with_recorded_header(SET_COOKIE).with_realm("shop").check().unwrap_err();
        assert!(header.to_string().starts_with("the header set-cookie belongs to one caller"));
    }

    #[test]
    #[should_panic(expected = "realm is empty")]
    fn a_layer_that_breaks_a_limit_serves_nothing() {
        let _service = layer().with_realm("").layer(());
    }

    #[test]
    fn scoping_does_not_depend_on_the_order_of_its_settings() {
        let shown = |layer: IdempotencyLayer| format!("{layer:?}");
        let credentials = || [Credential::cookie("sid")];
        let forth = layer()
            .with_realm("shop")
            .with_anonymous_callers(Anonymous::Share)
            .with_credentials(credentials());
        let back = layer()
            .with_credentials(credentials())
            .with_anonymous_callers(Anonymous::Share)
            .with_realm("shop");
        assert_eq!(shown(forth), shown(back));
    }
}
