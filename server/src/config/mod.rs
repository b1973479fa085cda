//! The configuration of the gateway, checked and complete.
//!
//! - `settings/`: the settings from flags, variables and the file, each optional.
//! - `route`: the settings of a route, checked and complete.
//! - `limits`: the limits of requests, attempts and the store.
//! - `words`, `units`: the values of settings: choices, sizes and durations.
//! - `pattern`: the paths that a route covers.
//! - `jwt`: the settings of verified tokens.
//! - `secrets`: the secrets that seal the secret of the principals.
//! - `guarded`: the header fields on which the gateway relies.
//! - `shown`: the configuration as the admin listener shows it.

mod settings;
mod route;
pub(crate) mod guarded;
mod limits;
mod units;
mod words;
mod jwt;
mod secrets;
mod pattern;
mod shown;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::HeaderName;
use semel::Scope;
use semel::http::{Anonymous, IdempotencyLayer};

pub(crate) use jwt::{JwtConfig, KeysAt};
pub(crate) use limits::{Limits, StoreLimit};
pub(crate) use pattern::{Pattern, Spellings};
pub(crate) use route::{Origin, RouteConfig};
pub(crate) use secrets::PrincipalSecrets;
pub(crate) use settings::{LogFormat, RouteSettings, Settings, StoreSettings, read_file};
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
    pub(crate) place: StoreSettings,
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
    pub(crate) cache_first: bool,
    pub(crate) prune: bool,
    pub(crate) principal_secrets: PrincipalSecrets,
    pub(crate) log_format: LogFormat,
}

/// The files for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
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
        let realm = settings.realm.unwrap_or_else(|| IdempotencyLayer::DEFAULT_REALM.to_owned());
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
        let span = |name: &str, set: Option<Span>, default: Duration, shortest: u64| {
            let set = set.map_or(default, |span| span.0);
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
            header_timeout: span("header-timeout", settings.header_timeout, Duration::from_secs(30), 10)?,
            body_timeout: span(
                "body-timeout",
                settings.body_timeout,
                IdempotencyLayer::DEFAULT_REQUEST_TIMEOUT,
                10,
            )?,
            max_connections,
            limits,
            max_memory,
            websocket_timeout: span(
                "websocket-timeout",
                settings.websocket_timeout,
                Duration::from_secs(300),
                10,
            )?,
            tls: match (settings.tls_cert, settings.tls_key) {
                (Some(cert), Some(key)) => Some(Tls { cert, key }),
                (None, None) => None,
                (Some(_), None) => bail!("tls-cert needs tls-key"),
                (None, Some(_)) => bail!("tls-key needs tls-cert"),
            },
            upstream_ca: settings.upstream_ca,
            drain: span("drain", settings.drain, Duration::from_secs(30), 0)?,
            migrate: settings.migrate,
            cache_first: settings.cache_first.unwrap_or(false),
            prune: settings.prune.unwrap_or(true),
            principal_secrets: PrincipalSecrets::read(settings.principal_secret_file)?,
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
        })
    }
}

#[cfg(test)]
mod tests;
