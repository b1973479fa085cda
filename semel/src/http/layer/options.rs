//! The options of a layer, and their defaults.

use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use ::http::header::HeaderName;

use super::IdempotencyLayer;
use crate::http::reply::renderer::Renderer;
use crate::http::request::fingerprint::RequestFingerprint;
use crate::http::request::memory::Memory;
use crate::http::request::pace::LeastRate;
use crate::http::request::scope::Scoping;
use crate::http::request::secret::PrincipalSecret;
use crate::http::response::headers::Recorded;
use crate::http::response::settle::Settle;

/// The header that contains the key, unless set.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl IdempotencyLayer {
    /// The methods on which a key counts, unless set.
    pub const DEFAULT_METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    /// The realm of the keys, unless set.
    pub const DEFAULT_REALM: &str = "http";
    /// The largest body of a request with a key, unless set.
    pub const DEFAULT_MAX_REQUEST_BYTES: usize = 1 << 20;
    /// The time limit for the arrival of a request's body, unless set.
    pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
}

/// The application's rule for responses.
pub(in crate::http) type SettleBy = dyn Fn(&::http::response::Parts) -> Option<Settle> + Send + Sync;

/// The path under which a request is compared with other requests.
pub(in crate::http) type Path = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The options of a layer.
#[derive(Clone)]
pub(in crate::http) struct Options {
    pub(in crate::http) header: HeaderName,
    pub(in crate::http) strict: bool,
    pub(in crate::http) required: bool,
    pub(in crate::http) methods: Vec<Method>,
    pub(in crate::http) scoping: Scoping,
    pub(in crate::http) secret: PrincipalSecret,
    pub(in crate::http) fingerprint: RequestFingerprint,
    pub(in crate::http) max_request_bytes: usize,
    pub(in crate::http) request_timeout: Duration,
    pub(in crate::http) least_rate: Option<LeastRate>,
    pub(in crate::http) memory: Option<Memory>,
    pub(in crate::http) recorded: Recorded,
    pub(in crate::http) settle: Option<Arc<SettleBy>>,
    pub(in crate::http) whole_within: Option<Duration>,
    pub(in crate::http) path: Option<Arc<Path>>,
    pub(in crate::http) renderer: Renderer,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            header: IDEMPOTENCY_KEY,
            strict: false,
            required: false,
            methods: IdempotencyLayer::DEFAULT_METHODS.to_vec(),
            scoping: Scoping::default(),
            secret: PrincipalSecret::default(),
            fingerprint: RequestFingerprint::raw(),
            max_request_bytes: IdempotencyLayer::DEFAULT_MAX_REQUEST_BYTES,
            request_timeout: IdempotencyLayer::DEFAULT_REQUEST_TIMEOUT,
            least_rate: None,
            memory: None,
            recorded: Recorded::default(),
            settle: None,
            whole_within: None,
            path: None,
            renderer: Renderer::default(),
        }
    }
}
