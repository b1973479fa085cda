//! The layer: the options that are set once, for all requests of a route.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::HeaderName;
use ::http::request::Parts;
use ::http::{Method, Response};
use bytes::Bytes;
use tower_layer::Layer;

use super::service::Idempotency;
use crate::engine::policy::{Policy, PolicyError};
use crate::engine::{Ceiling, Once, StoreHealth};
use crate::error::Error;
use crate::http::reply::rejection::{Rejection, Renderer};
use crate::http::request::credentials::Credential;
use crate::http::request::fingerprint::RequestFingerprint;
use crate::http::request::memory::Memory;
use crate::http::request::pace::LeastRate;
use crate::http::request::scope::{Anonymous, By, Scoping};
use crate::http::request::secret::PrincipalSecret;
use crate::http::response::headers::Recorded;
use crate::http::response::verdict::Verdict;
use crate::store::Store;
use crate::store::pruner::Pruning;
use crate::words::key::Scope;

/// The application's verdict on a response.
pub(super) type Judge = dyn Fn(&::http::response::Parts) -> Option<Verdict> + Send + Sync;

/// The path under which a request is compared with other requests.
pub(super) type Path = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Puts [`Idempotency`] around a service.
///
/// It is cheap to clone. Clones share the store, the running attempts and the repeats that wait for
/// them; a clone with other options is the layer of another route. The [module](super) describes
/// its behaviour.
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(super) once: Once,
    pub(super) options: Arc<Options>,
}

/// The options of a layer.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) header: HeaderName,
    pub(super) strict: bool,
    pub(super) required: bool,
    pub(super) methods: Vec<Method>,
    pub(super) scoping: Scoping,
    pub(super) secret: PrincipalSecret,
    pub(super) fingerprint: RequestFingerprint,
    pub(super) max_request_bytes: usize,
    pub(super) request_timeout: Duration,
    pub(super) least_rate: Option<LeastRate>,
    pub(super) memory: Option<Memory>,
    pub(super) recorded: Recorded,
    pub(super) judge: Option<Arc<Judge>>,
    pub(super) whole_within: Option<Duration>,
    pub(super) path: Option<Arc<Path>>,
    pub(super) renderer: Renderer,
}

impl IdempotencyLayer {
    /// A layer over a store, with [`Policy::hold`].
    pub fn new(store: impl Store) -> Self {
        Self::over(Once::new(store))
    }

    /// A layer over an engine, with its policy, its name for this process, and its reconcile hook.
    pub fn over(once: Once) -> Self {
        let options = Options {
            header: HeaderName::from_static("idempotency-key"),
            strict: false,
            required: false,
            methods: vec![Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
            scoping: Scoping::default(),
            secret: PrincipalSecret::default(),
            fingerprint: RequestFingerprint::raw(),
            max_request_bytes: 1 << 20,
            request_timeout: Duration::from_secs(30),
            least_rate: None,
            memory: None,
            recorded: Recorded::default(),
            judge: None,
            whole_within: None,
            path: None,
            renderer: Renderer::default(),
        };
        Self { once, options: Arc::new(options) }
    }

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

    /// Sets the realm of the keys, for services that share a store; `http` unless set. With
    /// [`IdempotencyLayer::with_scope`] the application sets the realm itself. It is 1 to 255
    /// bytes without control characters; see [`IdempotencyLayer::check`].
    #[must_use]
    pub fn with_realm(self, realm: &str) -> Self {
        self.with(|options| options.scoping.realm = Scope::new(realm))
    }

    /// Sets the parts of a request that make it the same request; every byte of it unless set.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: RequestFingerprint) -> Self {
        self.with(|options| options.fingerprint = fingerprint)
    }

    /// Sets the path under which requests are compared, for services that treat several paths as
    /// one: `/charges` for `/charges/`, for example. `None` stands for the path as it was sent. The
    /// handler always gets the path as it was sent.
    #[must_use]
    pub fn with_path(self, path: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|options| options.path = Some(Arc::new(path)))
    }

    /// Sets the largest body of a request with a key; 1 MiB unless set. The body is held in memory
    /// while the request is served.
    #[must_use]
    pub fn with_max_request_bytes(self, bytes: usize) -> Self {
        self.with(|options| options.max_request_bytes = bytes)
    }

    /// Sets the time limit for the arrival of a request's body; 30 s unless set.
    #[must_use]
    pub fn with_request_timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.request_timeout = timeout)
    }

    /// Sets the lowest rate at which the body of a request with a key may arrive, in bytes a second
    /// on average over each five seconds. A slower body is refused with 408, long before its
    /// timeout, and its memory is freed. No rate is required unless this is set.
    #[must_use]
    pub fn with_least_rate(self, bytes_per_second: u32) -> Self {
        self.with(|options| options.least_rate = LeastRate::of(bytes_per_second))
    }

    /// Sets a budget for all bodies in memory, of requests and responses; clones of the layer share
    /// it, and so do other layers that get a clone of it. [`Memory`] describes the treatment of a
    /// request for which there is no room. Without a budget, each body is bounded by its own limit,
    /// and their number by the layers around this one.
    ///
    /// A budget should be at least two times the largest request and the largest response that is
    /// recorded.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        self.with(|options| options.memory = Some(memory))
    }

    /// Adds a header of the response to the recorded ones. It must not belong to one caller or one
    /// connection; see [`IdempotencyLayer::check`].
    #[must_use]
    pub fn with_recorded_header(self, name: HeaderName) -> Self {
        self.with(|options| options.recorded.add(name))
    }

    /// Sets the rule by which a response is recorded or releases the key, where the handler does
    /// not decide itself. A response for which it returns `None` follows the table of [`Verdict`].
    #[must_use]
    pub fn with_verdict(
        self,
        judge: impl Fn(&::http::response::Parts) -> Option<Verdict> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.judge = Some(Arc::new(judge)))
    }

    /// Makes a response an outcome only when it has come to its end, within this time. A response
    /// that breaks off earlier is not an outcome: the key is held, and the caller gets an error. A
    /// response that takes longer, or is a stream by its type, is recorded without its body, as
    /// usual.
    ///
    /// This is for remote inner services, behind a connection: the service that sent the status may
    /// not have done its work yet. Unless it is set, a response that breaks off is recorded without
    /// its body, and the layer waits for one of unknown length for a second.
    #[must_use]
    pub fn with_whole_responses(self, within: Duration) -> Self {
        self.with(|options| options.whole_within = Some(within))
    }

    /// Sets the page that describes the problems: its URL becomes their `type`, with the code as
    /// its fragment.
    ///
    /// `docs/troubleshooting.md` of this project is such a page; serve it, or one with the same
    /// headings.
    #[must_use]
    pub fn with_problem_page(self, url: &str) -> Self {
        self.with(|options| options.renderer.page = Some(Arc::from(url)))
    }

    /// Sets the response that the caller gets for a refusal, instead of problem details.
    #[must_use]
    pub fn with_rejections(
        self,
        render: impl Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.renderer.own = Some(Arc::new(render)))
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
