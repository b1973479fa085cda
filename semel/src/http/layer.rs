//! The layer: what is set once, for all requests of a route.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AUTHORIZATION, COOKIE, HeaderName};
use ::http::request::Parts;
use ::http::{Method, Response};
use bytes::Bytes;
use tower_layer::Layer;

use super::fingerprint::RequestFingerprint;
use super::headers::{HeaderRefused, Recorded};
use super::rejection::{Rejection, Renderer};
use super::scope::Scoping;
use super::service::Idempotency;
use super::verdict::Verdict;
use crate::key::{KeyError, Scope};
use crate::once::Once;
use crate::policy::{Policy, PolicyError};
use crate::store::Store;

/// What the application makes of a response.
pub(super) type Judge = dyn Fn(&::http::response::Parts) -> Option<Verdict> + Send + Sync;

/// The path under which a request is compared with others.
pub(super) type Path = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Puts [`Idempotency`] around a service.
///
/// It is cheap to clone. Clones share the store, and with it the attempts that run and those who wait for them; a
/// clone with other options is the layer of another route. See the [module](super) for what it does.
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(super) once: Once,
    pub(super) options: Arc<Options>,
}

/// What a layer was told.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) header: HeaderName,
    pub(super) strict: bool,
    pub(super) required: bool,
    pub(super) methods: Vec<Method>,
    pub(super) realm: Scope,
    pub(super) scoping: Scoping,
    pub(super) fingerprint: RequestFingerprint,
    pub(super) max_request_bytes: usize,
    pub(super) request_timeout: Duration,
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
        let realm = Scope::new("http").expect("a valid realm");
        let names = Arc::from([AUTHORIZATION, COOKIE, HeaderName::from_static("x-api-key")]);
        let options = Options {
            header: HeaderName::from_static("idempotency-key"),
            strict: false,
            required: false,
            methods: vec![Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
            scoping: Scoping::Credentials { realm: realm.clone(), names },
            realm,
            fingerprint: RequestFingerprint::raw(),
            max_request_bytes: 1 << 20,
            request_timeout: Duration::from_secs(30),
            recorded: Recorded::default(),
            judge: None,
            whole_within: None,
            path: None,
            renderer: Renderer::default(),
        };
        Self { once, options: Arc::new(options) }
    }

    /// The same layer with another policy: what happens after a crash, lease, retention, wait, and the largest
    /// response that is recorded.
    ///
    /// # Panics
    /// If the store cannot keep its promise: [`Policy::transactional`] over any store but Postgres. A service finds that out
    /// when it starts; [`IdempotencyLayer::try_with_policy`] is for policies that a configuration names.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { once: self.once.with_policy(policy), ..self }
    }

    /// The same layer with another policy.
    ///
    /// # Errors
    /// [`PolicyError::NotTransactional`] if the store cannot keep its promise.
    pub fn try_with_policy(self, policy: Policy) -> Result<Self, PolicyError> {
        Ok(Self { once: self.once.try_with_policy(policy)?, ..self })
    }

    /// Whether requests by POST and PATCH must have a key; if so, they are refused without one. They need not, unless
    /// set.
    #[must_use]
    pub fn with_required_key(self, required: bool) -> Self {
        self.with(|options| options.required = required)
    }

    /// The key is in this header instead of `Idempotency-Key`.
    #[must_use]
    pub fn with_header_name(self, name: HeaderName) -> Self {
        self.with(|options| options.header = name)
    }

    /// Whether a key must be quoted, as the draft of the header has it; if so, bare ones are refused. It need not,
    /// unless set.
    #[must_use]
    pub fn with_strict_keys(self, strict: bool) -> Self {
        self.with(|options| options.strict = strict)
    }

    /// Keys count on these methods; POST, PUT, PATCH and DELETE unless set. On others they are ignored.
    #[must_use]
    pub fn with_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|options| options.methods = methods.into_iter().collect())
    }

    /// Whose key it is, by what the application knows: the tenant, and the caller by an identity that does not
    /// change with a refreshed token. Whatever says so, an extension of an authentication layer say, must come before
    /// this layer. A request of which it says `None` is refused.
    ///
    /// Unless this is set, the scope is a digest of the credentials: the headers `Authorization`, `Cookie` and
    /// `X-Api-Key`, as far as there are any. That keeps callers apart who are told apart by these headers. It has two
    /// costs. A repeat whose credentials have changed is a new request and **runs again**: a refreshed token, a
    /// cookie that a load balancer sets anew, a signature made for each request. And callers without any of them, known by
    /// their client certificate say, are one.
    #[must_use]
    pub fn with_scope(self, scope: impl Fn(&Parts) -> Option<Scope> + Send + Sync + 'static) -> Self {
        self.with(|options| options.scoping = Scoping::Application(Arc::new(scope)))
    }

    /// The scope is a digest of these headers instead of `Authorization`, `Cookie` and `X-Api-Key`; see
    /// [`IdempotencyLayer::with_scope`] for what that costs.
    #[must_use]
    pub fn with_credentials(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        let realm = self.options.realm.clone();
        self.with(|options| {
            options.scoping = Scoping::Credentials { realm, names: names.into_iter().collect() };
        })
    }

    /// The realm of the keys, for services that share a store; `http` unless set. With
    /// [`IdempotencyLayer::with_scope`] the application says it itself.
    ///
    /// # Errors
    /// [`KeyError`] if the realm breaks a limit.
    pub fn with_realm(self, realm: &str) -> Result<Self, KeyError> {
        let scope = Scope::new(realm)?;
        Ok(self.with(|options| {
            options.realm = scope.clone();
            if let Scoping::Credentials { realm, .. } = &mut options.scoping {
                *realm = scope;
            }
        }))
    }

    /// What makes a request the same request; every byte of it unless set.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: RequestFingerprint) -> Self {
        self.with(|options| options.fingerprint = fingerprint)
    }

    /// The path under which requests are compared, for services that take several paths for one: `/charges` for `/charges/`,
    /// say. `None` stands for the path as it was sent. The handler gets the path as it was sent in any case.
    #[must_use]
    pub fn with_path(self, path: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|options| options.path = Some(Arc::new(path)))
    }

    /// The largest body of a request with a key; 1 MiB unless set. It is held in memory while the request is served.
    #[must_use]
    pub fn with_max_request_bytes(self, bytes: usize) -> Self {
        self.with(|options| options.max_request_bytes = bytes)
    }

    /// How long the body of a request with a key may take to arrive; 30 s unless set.
    #[must_use]
    pub fn with_request_timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.request_timeout = timeout)
    }

    /// This header of a response is recorded, too.
    ///
    /// # Errors
    /// [`HeaderRefused`] if it belongs to one caller or one connection.
    pub fn with_recorded_header(self, name: HeaderName) -> Result<Self, HeaderRefused> {
        let recorded = self.options.recorded.clone().with(name)?;
        Ok(self.with(|options| options.recorded = recorded))
    }

    /// Which responses are recorded and which release the key, where the handler does not say so itself. What this
    /// leaves open (`None`) is decided as in the table of [`Verdict`].
    #[must_use]
    pub fn with_verdict(
        self,
        judge: impl Fn(&::http::response::Parts) -> Option<Verdict> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.judge = Some(Arc::new(judge)))
    }

    /// A response is an outcome only when it has come to its end, for which it is given this long. One that breaks off
    /// before is none: the key is held, and the caller told so. One that takes longer, or is a stream by its type, is
    /// recorded without its body, as ever.
    ///
    /// This is for inner services that are elsewhere, behind a connection: what sent the status may not have done its work yet.
    /// Unless it is set, a response that breaks off is recorded without its body, and one of unknown length is waited for
    /// for a second.
    #[must_use]
    pub fn with_whole_responses(self, within: Duration) -> Self {
        self.with(|options| options.whole_within = Some(within))
    }

    /// The page that describes the problems: it becomes their `type`, with the code as its fragment.
    ///
    /// `docs/troubleshooting.md` of this project is such a page; serve it, or one with the same headings.
    #[must_use]
    pub fn with_problem_page(self, url: &str) -> Self {
        self.with(|options| options.renderer.page = Some(Arc::from(url)))
    }

    /// What the caller sees of a refusal, instead of problem details.
    #[must_use]
    pub fn with_rejections(
        self,
        render: impl Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.renderer.own = Some(Arc::new(render)))
    }

    /// Answers repeats that wait for a running attempt at once, from now on. Call it when a shutdown begins: a server that
    /// waits for its requests under way would wait for those, too; see [`Once::end_waits`].
    pub fn end_waits(&self) {
        self.once.end_waits();
    }

    /// Waits until all attempts of this layer and its clones are settled. Call it at shutdown, after the server has
    /// stopped to accept requests; see [`Once::drain`].
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
