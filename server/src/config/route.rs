//! The settings of a route, checked and complete.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::uri::{Authority, Scheme};
use http::{HeaderName, Method, Uri};
use semel::Policy;
use semel::error::PolicyError;
use semel::http::{IdempotencyLayer, may_record};

use super::jwt::JwtConfig;
use super::pattern::Spellings;
use super::settings::{PolicyName, RouteSettings};
use super::units::{Size, Span};
use super::words::{AnonymousCallers, Scoping, Spelling};

/// The settings of a route.
#[derive(Debug, Clone)]
pub(crate) struct RouteConfig {
    /// The destination of the requests; `None` refuses them.
    pub(crate) upstream: Option<Origin>,
    pub(crate) upstream_timeout: Duration,
    pub(crate) policy: Policy,
    pub(crate) methods: Vec<Method>,
    pub(crate) require_key: bool,
    pub(crate) scope: Scoping,
    /// The explicit setting; otherwise it depends on the listener.
    pub(crate) anonymous: Option<AnonymousCallers>,
    /// Present if the scope is `jwt`.
    pub(crate) jwt: Option<JwtConfig>,
    pub(crate) max_body: usize,
    /// The response headers that are recorded in addition to the standard ones.
    pub(crate) record_headers: Vec<HeaderName>,
    pub(crate) spellings: Spellings,
}

/// The address of a service: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

impl RouteConfig {
    pub(super) fn new(upstream: Option<&str>, settings: RouteSettings) -> Result<Self> {
        let mut policy = match settings.policy.unwrap_or(PolicyName::Hold) {
            PolicyName::Hold => Policy::hold(),
            PolicyName::Retry => Policy::retry(),
            PolicyName::Transactional => Policy::transactional(),
        };
        if let Some(Span(lease)) = settings.lease {
            policy = policy.with_lease(lease);
        }
        if let Some(Span(retention)) = settings.retention {
            policy = policy.with_retention(retention);
        }
        if let Some(Span(wait)) = settings.wait {
            policy = policy.with_wait(wait);
        }
        if let Some(Size(bytes)) = settings.max_response {
            policy = policy.with_max_body_bytes(bytes);
        }
        policy.check().map_err(|error| match error {
            PolicyError::Body { .. } => anyhow::Error::from(error).context("max-response"),
            _ => error.into(),
        })?;
        let upstream_timeout = settings.upstream_timeout.map_or(Duration::from_secs(30), |span| span.0);
        ensure!(
            (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&upstream_timeout),
            "upstream-timeout of {} is not within 1ms to 1day",
            Span(upstream_timeout)
        );
        let scope = settings.scope.clone().unwrap_or(Scoping::Credentials(Vec::new()));
        Ok(Self {
            upstream: upstream.map(Origin::parse).transpose()?,
            upstream_timeout,
            policy,
            methods: match &settings.methods {
                Some(names) => methods(names)?,
                None => IdempotencyLayer::DEFAULT_METHODS.to_vec(),
            },
            require_key: settings.require_key.unwrap_or(false),
            jwt: (scope == Scoping::Jwt).then(|| JwtConfig::new(&settings)).transpose()?,
            anonymous: settings.anonymous,
            scope,
            max_body: settings.max_body.map_or(IdempotencyLayer::DEFAULT_MAX_REQUEST_BYTES, |size| size.0),
            record_headers: recorded(&settings.record_header.unwrap_or_default())?,
            spellings: Spellings {
                ignore_slash: settings.trailing_slash == Some(Spelling::Ignore),
                ignore_case: settings.case == Some(Spelling::Ignore),
            },
        })
    }

    /// Checks that the largest bodies fit into their shares of the memory.
    pub(super) fn fits(&self, max_memory: usize) -> Result<()> {
        let largest = [("max-body", self.max_body), ("max-response", self.policy.max_body_bytes())];
        for (name, bytes) in largest {
            ensure!(
                bytes <= max_memory / 2,
                "{name} of {} is more than half of max-memory, which is {}: raise that",
                Size(bytes),
                Size(max_memory)
            );
        }
        Ok(())
    }
}

/// Parses header names and checks that each may be recorded.
fn recorded(names: &[String]) -> Result<Vec<HeaderName>> {
    let header = |name: &String| {
        let header: HeaderName =
            name.trim().parse().ok().with_context(|| format!("`{name}` is not the name of a header"))?;
        may_record(&header)?;
        Ok(header)
    };
    names.iter().map(header).collect::<Result<Vec<_>>>().context("record-header")
}

/// Parses methods. Safe methods, and methods that a gateway does not serve, are refused because
/// they need no key.
fn methods(names: &[String]) -> Result<Vec<Method>> {
    let method = |name: &String| {
        let method: Method = name.trim().parse().ok().with_context(|| format!("`{name}` is not a method"))?;
        ensure!(
            !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT),
            "a key does not count on {method}"
        );
        ensure!(
            name.trim().bytes().all(|byte| byte.is_ascii_uppercase()),
            "methods are written in capitals: `{name}`"
        );
        Ok(method)
    };
    let methods = names.iter().map(method).collect::<Result<Vec<_>>>().context("methods")?;
    ensure!(!methods.is_empty(), "methods: there is none");
    Ok(methods)
}

impl Origin {
    fn parse(text: &str) -> Result<Self> {
        // The URL is not shown: the mistake may be in its password.
        ensure!(!text.contains('@'), "the upstream has a login, which is not supported");
        let uri: Uri = text.parse().with_context(|| format!("upstream `{text}` is not a URL"))?;
        let scheme = uri.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
            bail!("upstream `{text}` is not a URL such as http://127.0.0.1:3000 or https://service.internal");
        };
        ensure!(
            uri.path_and_query().is_none_or(|path| path == "/"),
            "upstream `{text}` has a path: the gateway passes on the path of the request as it is"
        );
        Ok(Self { scheme: scheme.clone(), authority: authority.clone() })
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}
