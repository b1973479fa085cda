//! The configuration of the gateway, checked and complete.
//!
//! - `settings`: the settings from flags, variables and the file, each optional.
//! - `limits`: the limits of requests, attempts and the store.
//! - `words`, `units`: the values of settings: choices, sizes and durations.
//! - `pattern`: the paths that a route covers.
//! - `jwt`: the settings of verified tokens.
//! - `secrets`: the secrets that seal the secret of the principals.
//! - `guarded`: the header fields on which the gateway relies.
//! - `shown`: the configuration as the admin listener shows it.

mod settings;
pub(crate) mod guarded;
mod limits;
mod units;
mod words;
mod jwt;
mod secrets;
mod pattern;
mod shown;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::uri::{Authority, Scheme};
use http::{HeaderName, Method, Uri};
use semel::error::PolicyError;
use semel::http::{Anonymous, may_record};
use semel::{Policy, Scope};

pub(crate) use jwt::{JwtConfig, KeysAt};
pub(crate) use limits::{Limits, StoreLimit};
pub(crate) use pattern::{Pattern, Spellings};
pub(crate) use secrets::PrincipalSecrets;
pub(crate) use settings::{LogFormat, Place, PolicyName, RouteSettings, Settings};
pub(crate) use units::{Size, Span};
pub(crate) use words::{Admin, AnonymousCallers, Scoping, Secret, Spelling, Uncovered, Underscores};

/// The complete configuration, with every default filled in.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    /// Host names under which the admin listener answers, in lower case.
    pub(crate) admin_hosts: Vec<String>,
    pub(crate) admin_token: Option<Secret>,
    pub(crate) place: Place,
    pub(crate) realm: String,
    /// The settings for requests that no route covers; without routes, all requests are covered by
    /// these.
    pub(crate) all: RouteConfig,
    pub(crate) routes: Vec<(Pattern, RouteConfig)>,
    pub(crate) uncovered: Uncovered,
    pub(crate) underscores: Underscores,
    /// The header fields by which the scopes identify callers.
    pub(crate) scope_headers: Vec<HeaderName>,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) limits: Limits,
    /// The memory for all bodies that are held, in bytes.
    pub(crate) max_memory: usize,
    pub(crate) websocket_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) upstream_ca: Option<PathBuf>,
    pub(crate) drain: Duration,
    pub(crate) migrate: Option<bool>,
    pub(crate) prune: bool,
    pub(crate) principal_secrets: PrincipalSecrets,
    pub(crate) log_format: LogFormat,
}

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

/// The files for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The address of a service: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

/// The settings of a file; empty without one.
///
/// # Errors
/// If the file cannot be read or is invalid; the message shows the line number.
pub(crate) fn read_file(path: Option<&Path>) -> Result<Settings> {
    let Some(path) = path else { return Ok(Settings::default()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    // The line itself is left out, because it may hold a password.
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count()) + 1;
        anyhow!("could not understand {}: line {line}: {}", path.display(), error.message())
    })
}

impl Config {
    /// The treatment of a request with a key but without the credentials of its route.
    pub(crate) fn anonymous(&self, route: &RouteConfig) -> Anonymous {
        match route.anonymous {
            Some(AnonymousCallers::Share) => Anonymous::Share,
            // A proxy on the same host may also listen in front of loopback, so requests over
            // loopback are not all local.
            None if self.is_local() => Anonymous::ShareLocal,
            Some(AnonymousCallers::Refuse) | None => Anonymous::Refuse,
        }
    }

    /// Returns `true` if only this host can reach the gateway.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// The token settings of all routes.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &JwtConfig> {
        let routes = self.routes.iter().map(|(_, route)| route);
        routes.chain([&self.all]).filter_map(|route| route.jwt.as_ref())
    }

    /// Reads flags and variables, and the file that they name.
    ///
    /// # Errors
    /// If a setting is missing or breaks a limit.
    pub(crate) fn load(flags: &Settings) -> Result<Self> {
        let settings = flags.clone().or(read_file(flags.config.as_deref())?);
        Self::new(settings)
    }

    /// Checks the settings and fills in the defaults.
    ///
    /// # Errors
    /// If a setting is missing or breaks a limit.
    pub(crate) fn new(settings: Settings) -> Result<Self> {
        let Settings { upstream, route, routes, .. } = settings;
        let realm = settings.realm.unwrap_or_else(|| "http".to_owned());
        Scope::new(&realm).context("realm")?;
        let place = settings.place;
        let all = RouteConfig::new(upstream.as_deref(), route.clone())?;
        place.check_policy(&all.policy)?;
        let routes: Vec<_> = routes.unwrap_or_default();
        let routes = routes.into_iter().map(|own| {
            let path = own.path;
            let config = || {
                let pattern: Pattern = path.parse().map_err(anyhow::Error::msg)?;
                let upstream = own.upstream.as_deref().or(upstream.as_deref());
                let named = jwt::setting_of(&own.settings);
                let config = RouteConfig::new(upstream, own.settings.or(route.clone()))?;
                jwt::ensure_used(named, config.jwt.is_some())?;
                place.check_policy(&config.policy)?;
                ensure!(
                    config.upstream.is_some(),
                    "there is no upstream, neither for this route nor for all"
                );
                Ok((pattern, config))
            };
            config().with_context(|| format!("route {path}"))
        });
        let routes = routes.collect::<Result<Vec<_>>>()?;
        let verifies = routes.iter().map(|(_, route)| route).chain([&all]).any(|route| route.jwt.is_some());
        jwt::ensure_used(jwt::setting_of(&route), verifies)?;
        ensure!(
            all.upstream.is_some() || !routes.is_empty(),
            "there is no upstream: say where the service is, such as --upstream http://127.0.0.1:3000"
        );
        let mut scope_headers: Vec<_> = routes
            .iter()
            .map(|(_, route)| route)
            .chain([&all])
            .flat_map(|route| route.scope.headers())
            .collect();
        scope_headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        scope_headers.dedup();
        let underscores = settings.underscores.unwrap_or(Underscores::Drop);
        guarded::check_scopes(&scope_headers, underscores)?;
        let max_connections = settings.max_connections.unwrap_or(10_000);
        ensure!((1..=1_000_000).contains(&max_connections), "max-connections is not within 1 to 1000000");
        let limits = Limits::new(&settings.limits, place.store_url())?;
        let max_memory = settings.max_memory.map_or(256 << 20, |size| size.0);
        for (path, route) in routes.iter().map(|(path, route)| (path.to_string(), route)) {
            route.fits(max_memory).with_context(|| format!("route {path}"))?;
        }
        all.fits(max_memory)?;
        let span = |name: &str, set: Option<Span>, default: u64, shortest: u64| {
            let set = set.map_or(Duration::from_secs(default), |span| span.0);
            let longest = Duration::from_secs(86_400);
            ensure!(
                (Duration::from_millis(shortest)..=longest).contains(&set),
                "{name} of {} is not within {} to {}",
                Span(set),
                Span(Duration::from_millis(shortest)),
                Span(longest)
            );
            Ok(set)
        };
        Ok(Self {
            listen: settings.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080))),
            admin: match settings.admin {
                None => Some(SocketAddr::from(([127, 0, 0, 1], 9180))),
                Some(Admin::At(address)) => Some(address),
                Some(Admin::Off) => None,
            },
            admin_hosts: settings
                .admin_host
                .unwrap_or_default()
                .iter()
                .map(|name| name.trim().to_ascii_lowercase())
                .collect(),
            admin_token: settings
                .admin_token_file
                .as_deref()
                .map(Secret::read)
                .transpose()
                .context("admin-token-file")?,
            uncovered: settings.uncovered.unwrap_or(if routes.is_empty() {
                Uncovered::Pass
            } else {
                Uncovered::Refuse
            }),
            underscores,
            scope_headers,
            place,
            realm,
            all,
            routes,
            header_timeout: span("header-timeout", settings.header_timeout, 30, 10)?,
            body_timeout: span("body-timeout", settings.body_timeout, 30, 10)?,
            max_connections,
            limits,
            max_memory,
            websocket_timeout: span("websocket-timeout", settings.websocket_timeout, 300, 10)?,
            tls: match (settings.tls_cert, settings.tls_key) {
                (Some(cert), Some(key)) => Some(Tls { cert, key }),
                (None, None) => None,
                (Some(_), None) => bail!("tls-cert needs tls-key"),
                (None, Some(_)) => bail!("tls-key needs tls-cert"),
            },
            upstream_ca: settings.upstream_ca,
            drain: span("drain", settings.drain, 30, 0)?,
            migrate: settings.migrate,
            prune: settings.prune.unwrap_or(true),
            principal_secrets: PrincipalSecrets::read(settings.principal_secret_file)?,
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
        })
    }
}

impl RouteConfig {
    fn new(upstream: Option<&str>, settings: RouteSettings) -> Result<Self> {
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
                None => vec![Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
            },
            require_key: settings.require_key.unwrap_or(false),
            jwt: (scope == Scoping::Jwt).then(|| JwtConfig::new(&settings)).transpose()?,
            anonymous: settings.anonymous,
            scope,
            max_body: settings.max_body.map_or(1 << 20, |size| size.0),
            record_headers: recorded(&settings.record_header.unwrap_or_default())?,
            spellings: Spellings {
                ignore_slash: settings.trailing_slash == Some(Spelling::Ignore),
                ignore_case: settings.case == Some(Spelling::Ignore),
            },
        })
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

impl RouteConfig {
    /// Checks that the largest bodies fit into their shares of the memory.
    fn fits(&self, max_memory: usize) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<Config> {
        Config::new(toml::from_str(text)?)
    }

    fn refused(text: &str) -> String {
        format!("{:#}", config(text).expect_err(text))
    }

    #[test]
    fn an_upstream_is_enough() {
        let config = config("upstream = 'http://127.0.0.1:3000'").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.all.policy, Policy::hold());
        assert!(config.routes.is_empty());
    }

    #[test]
    fn a_route_takes_from_all_what_it_does_not_say() {
        let config = config(
            "upstream = 'http://a'
            lease = '10s'
            require-key = true
            [[route]]
            path = '/charges'
            upstream = 'https://b:8443'
            policy = 'retry'
            required = false
            [[route]]
            path = '/orders/{id}'",
        )
        .unwrap();
        let (_, charges) = &config.routes[0];
        assert_eq!(charges.upstream.as_ref().unwrap().to_string(), "https://b:8443");
        assert_eq!(charges.policy, Policy::retry().with_lease(Duration::from_secs(10)));
        assert!(!charges.require_key);
        let (_, orders) = &config.routes[1];
        assert_eq!(orders.upstream.as_ref().unwrap().to_string(), "http://a");
        assert!(orders.require_key);
    }

    #[test]
    fn a_key_that_no_route_covers_is_refused_once_there_are_routes() {
        let uncovered = |text: &str| config(&format!("upstream = 'http://a'\n{text}")).unwrap().uncovered;
        assert_eq!(uncovered(""), Uncovered::Pass);
        assert_eq!(uncovered("[[route]]\npath = '/a'"), Uncovered::Refuse);
        assert_eq!(uncovered("uncovered = 'pass'\n[[route]]\npath = '/a'"), Uncovered::Pass);
    }

    #[test]
    fn flags_go_before_the_file() {
        let flags = Settings { realm: Some("shop".to_owned()), ..Settings::default() };
        let file = toml::from_str("realm = 'bank'\nupstream = 'http://a'\nstore = 'memory:'").unwrap();
        let config = Config::new(flags.or(file)).unwrap();
        assert_eq!((&*config.realm, config.place.store.as_deref()), ("shop", Some("memory:")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("", "there is no upstream"),
            ("upstream = 'ftp://a'", "upstream `ftp://a` is not a URL such as"),
            ("upstream = 'http://a/b'", "has a path"),
            ("upstream = 'http://a'\nlease = '10'", "write it with a unit"),
            ("upstream = 'http://a'\nlease = '1ms'", "lease of 1ms is not within"),
            ("upstream = 'http://a'\nretention = '1s'", "retention of 1s is shorter than the lease"),
            ("upstream = 'http://a'\nmax-body = '1 apple'", "is not a size"),
            ("upstream = 'http://a'\nmethods = ['GET']", "a key does not count on GET"),
            ("upstream = 'http://a'\nmethods = ['post']", "in capitals"),
            ("upstream = 'http://a'\nscope = 'me'", "is none of `credentials`"),
            ("upstream = 'http://a'\nrealm = ''", "realm"),
            ("upstream = 'http://a'\ntls-cert = 'a'", "tls-cert needs tls-key"),
            ("upstream = 'http://a'\npolicy = 'transactional'", "sqlite:semel.db is none: set the store"),
            (
                "upstream = 'http://a'\nstore = 'redis://a'\n[[route]]\npath = '/a'\npolicy = 'transactional'",
                "route /a: the policy `transactional` needs a Postgres store",
            ),
            ("upstream = 'http://a'\npolicy = 'never'", "unknown variant `never`"),
            ("upstream = 'http://a'\nleese = '1s'", "there is no setting `leese`"),
            ("[[route]]\npath = '/a'", "route /a: there is no upstream"),
            ("[[route]]\nupstream = 'http://a'", "a route needs a path"),
            ("[[route]]\npath = 'a'\nupstream = 'http://a'", "does not begin with"),
            (
                "upstream = 'http://a'\nrecord-header = ['Set-Cookie']",
                "record-header: the header set-cookie belongs",
            ),
            ("upstream = 'http://a'\nrecord-header = ['a b']", "`a b` is not the name of a header"),
            ("upstream = 'http://a'\nuncovered = 'maybe'", "unknown variant `maybe`"),
            ("upstream = 'http://a'\ncase = 'lower'", "unknown variant `lower`"),
            ("upstream = 'http://a'\nadmin-token-file = '/nowhere/token'", "could not read /nowhere/token"),
            ("upstream = 'http://a'\nmax-attempts = 0", "max-attempts is not within 1 to 1000000"),
            ("upstream = 'http://a'\nmax-store = '1000records'", "counts bytes in a SQLite store"),
            (
                "upstream = 'http://a'\nstore = 'memory:'\nmax-store = '1MiB'",
                "counts records in a memory store",
            ),
            ("upstream = 'http://a'\nmax-new-per-caller = '5'", "`5` is not a rate"),
            ("upstream = 'http://a'\nmax-unsettled-per-caller = 0", "would refuse every request"),
            (
                "upstream = 'http://a'\nmax-memory = '1MiB'",
                "max-body of 1MiB is more than half of max-memory",
            ),
            (
                "upstream = 'http://a'\nmax-memory = '4MiB'\n[[route]]\npath = '/a'\nmax-response = '3MiB'",
                "route /a: max-response of 3MiB is more than half of max-memory",
            ),
            (
                "upstream = 'http://a'\nscope = 'header:X_User'",
                "the header x_user has an underscore, and such headers are removed from requests: name it x-user",
            ),
            (
                "upstream = 'http://a'\nunderscores = 'allow'\nscope = 'credentials:x_real_ip'",
                "a service could take it for x-real-ip",
            ),
            (
                "upstream = 'http://a'\nscope = 'header:Semel-User'",
                "the header semel-user is removed from requests",
            ),
            ("upstream = 'http://a'\njwks = 'keys.json'", "jwks is set, and no scope is `jwt`"),
            ("upstream = 'http://a'\nclaim = 'uid'", "claim is set, and no scope is `jwt`"),
            (
                "upstream = 'http://a'\n[[route]]\npath = '/a'\nissuer = 'i'",
                "route /a: issuer is set, and no scope is `jwt`",
            ),
            ("upstream = 'http://a'\nwebsocket-timeout = '0s'", "websocket-timeout of 0s is not within"),
            ("upstream = 'http://a'\nheader-timeout = '0s'", "header-timeout of 0s is not within"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn a_scope_by_a_header_with_an_underscore_needs_such_headers() {
        config("upstream = 'http://a'\nunderscores = 'allow'\nscope = 'header:X_User'").unwrap();
    }

    #[test]
    fn tokens_that_only_a_route_needs_may_be_described_for_all() {
        let all = "upstream = 'http://a'\njwks = 'k'\nissuer = 'i'\naudience = 'a'";
        config(&format!("{all}\n[[route]]\npath = '/a'\nscope = 'jwt'\n[[route]]\npath = '/b'")).unwrap();
    }

    #[test]
    fn an_error_of_the_file_shows_the_line() {
        let error = refused("upstream = 'http://a'\n[[route]]\npath = '/a'\nlease = 'soon'");
        assert!(error.contains("line 4"), "{error}");
        let error = refused("upstream = 'http://a'\n\nleese = '10s'");
        assert!(error.contains("line 3"), "{error}");
    }
}
