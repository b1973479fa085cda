//! The options for keys: the requests that have one, and the caller whose key it is.

use std::sync::Arc;

use ::http::Method;
use ::http::header::HeaderName;
use ::http::request::Parts;

use super::IdempotencyLayer;
use crate::http::request::credentials::Credential;
use crate::http::request::scope::{Anonymous, By};
use crate::http::request::secret::PrincipalSecret;
use crate::words::key::Scope;

impl IdempotencyLayer {
    /// Requires a key for requests by POST and PATCH, and refuses them without one. Not required
    /// unless set.
    #[must_use]
    pub fn with_required_key(self, required: bool) -> Self {
        self.with(|options| options.required = required)
    }

    /// Sets the header that contains the key, instead of `Idempotency-Key`.
    #[must_use]
    pub fn with_header_name(self, name: HeaderName) -> Self {
        self.with(|options| options.header = name)
    }

    /// Requires quoted keys, as in the draft of the header, and refuses bare ones. Not required
    /// unless set.
    #[must_use]
    pub fn with_strict_keys(self, strict: bool) -> Self {
        self.with(|options| options.strict = strict)
    }

    /// Sets the methods on which keys count; POST, PUT, PATCH and DELETE unless set. On other
    /// methods they are ignored.
    #[must_use]
    pub fn with_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|options| options.methods = methods.into_iter().collect())
    }

    /// Sets the realm of the keys, for services that share a store; `http` unless set. With
    /// [`IdempotencyLayer::with_scope`] the application sets the realm itself. It is 1 to 255
    /// bytes without control characters; see [`IdempotencyLayer::check`].
    #[must_use]
    pub fn with_realm(self, realm: &str) -> Self {
        self.with(|options| options.scoping.realm = Scope::new(realm))
    }

    /// Sets the scope by the application's knowledge: the tenant, and the caller by an identity
    /// that does not change with a refreshed token. The layer that determines it, for example in an
    /// extension, must come in front of this one. A request for which this returns `None` is
    /// refused.
    ///
    /// Unless it is set, callers are distinguished by their credentials; see
    /// [`IdempotencyLayer::with_credentials`].
    #[must_use]
    pub fn with_scope(self, scope: impl Fn(&Parts) -> Option<Scope> + Send + Sync + 'static) -> Self {
        self.with(|options| options.scoping.by = By::Application(Arc::new(scope)))
    }

    /// Sets the principal by the application's knowledge: an identity of the caller that does not
    /// change with a refreshed token. The realm is that of [`IdempotencyLayer::with_realm`]. The
    /// layer that determines the caller, for example in an extension, must come in front of this
    /// one. A request for which this returns `None`, or a text that is empty or not a valid
    /// principal, is refused.
    ///
    /// ```
    /// use semel::MemoryStore;
    /// use semel::http::IdempotencyLayer;
    ///
    /// #[derive(Clone)]
    /// struct User {
    ///     id: String,
    /// }
    ///
    /// let layer = IdempotencyLayer::new(MemoryStore::new())
    ///     .with_principal(|parts| Some(parts.extensions.get::<User>()?.id.clone()));
    /// ```
    #[must_use]
    pub fn with_principal(
        self,
        principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.scoping.by = By::Principal(Arc::new(principal)))
    }

    /// Sets the credentials that distinguish callers, instead of [`Credential::common`]: headers,
    /// or single cookies. The principal of a key is a keyed digest (HMAC-SHA256) of those that a
    /// request has.
    ///
    /// A repeat with other credentials is another caller's request and **runs again**: with a
    /// refreshed token, or a signature made for each request. [`IdempotencyLayer::with_scope`] is
    /// for such services. A request with none of the credentials is refused; see
    /// [`IdempotencyLayer::with_anonymous_callers`].
    ///
    /// ```
    /// use semel::MemoryStore;
    /// use semel::http::{Credential, IdempotencyLayer};
    ///
    /// let layer = IdempotencyLayer::new(MemoryStore::new()).with_credentials([Credential::cookie("sid")]);
    /// ```
    #[must_use]
    pub fn with_credentials<C: Into<Credential>>(self, credentials: impl IntoIterator<Item = C>) -> Self {
        let names = credentials.into_iter().map(Into::into).collect();
        self.with(|options| {
            options.scoping.by = By::Credentials;
            options.scoping.names = names;
        })
    }

    /// Sets the treatment of a request with a key that has none of the credentials;
    /// [`Anonymous::Refuse`] unless set.
    ///
    /// With [`Anonymous::Share`] all of them are **one caller**, and any of them can get an answer
    /// that was recorded for another. It has no effect together with
    /// [`IdempotencyLayer::with_scope`].
    #[must_use]
    pub fn with_anonymous_callers(self, what: Anonymous) -> Self {
        self.with(|options| options.scoping.anonymous = what)
    }

    /// Seals the secret of the principals with a secret of the configuration, of at least 16 random
    /// bytes.
    ///
    /// Principals are derived from credentials by HMAC with a random secret, which the first
    /// process makes and the store keeps. Unless this is set, a copy of the store is enough to
    /// check guesses at short credentials, such as passwords. With it, that also takes the secret
    /// of the configuration. The first secret seals and all of them open: to change the secret,
    /// give every process the new one followed by the old one, and then the new one only.
    /// Principals stay the same throughout.
    ///
    /// All processes that share the store need it. A process without it, or with another one, does
    /// not serve keys: [`IdempotencyLayer::prepare`] reports that at start.
    #[must_use]
    pub fn with_principal_secrets<S: Into<Vec<u8>>>(self, secrets: impl IntoIterator<Item = S>) -> Self {
        let secrets = secrets.into_iter().map(|secret| secret.into().into_boxed_slice());
        self.with(|options| options.secret = PrincipalSecret::configured(secrets))
    }
}
