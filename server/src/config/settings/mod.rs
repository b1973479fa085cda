//! The settings: each is a flag, a variable and a key of the file.
//!
//! - `route`: the settings that a route can have of its own.
//! - `file`: the file, and its precedence.

mod route;
mod file;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::limits::LimitSettings;
use super::units::{Size, Span};
use super::words::{Admin, Uncovered, Underscores};

pub(crate) use self::file::read_file;
pub(crate) use self::route::{PolicyName, Route, RouteSettings};

/// The settings of the gateway. A flag takes precedence over a variable, and a variable over the
/// file; a setting that none of them has gets its default.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Settings {
    /// A file with these settings and with routes
    ///
    /// It is TOML; each key is the name of a flag. SIGHUP reloads it.
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, env = "SEMEL_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// The service behind the gateway, such as http://127.0.0.1:3000
    #[arg(long, env = "SEMEL_UPSTREAM", value_name = "URL")]
    pub(crate) upstream: Option<String>,

    #[command(flatten)]
    pub(crate) place: StoreSettings,

    /// Where health, metrics and the configuration are shown, or `off` [default: 127.0.0.1:9180]
    #[arg(long, env = "SEMEL_ADMIN", value_name = "ADDRESS")]
    pub(crate) admin: Option<Admin>,

    /// Names by which the admin listener may be asked, besides `localhost` and its own address; `*`
    /// for any
    ///
    /// A web page can make a browser ask an address of its choice under the name of the page. So a
    /// request for another host is refused.
    #[arg(long, env = "SEMEL_ADMIN_HOST", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) admin_host: Option<Vec<String>>,

    /// Ask for the bearer token in this file on the admin listener, except for /livez and /readyz
    #[arg(long, env = "SEMEL_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// The realm of the keys, for services that share a store [default: http]
    #[arg(long, env = "SEMEL_REALM", value_name = "NAME")]
    pub(crate) realm: Option<String>,

    #[command(flatten)]
    pub(crate) route: RouteSettings,

    /// How long the head of a request may take, and how long a connection may be idle [default:
    /// 30s]
    #[arg(long, env = "SEMEL_HEADER_TIMEOUT", value_name = "DURATION")]
    pub(crate) header_timeout: Option<Span>,

    /// How long a request's body may take, or its next bytes without a key, and a client to take
    /// more of its response [default: 30s]
    #[arg(long, env = "SEMEL_BODY_TIMEOUT", value_name = "DURATION")]
    pub(crate) body_timeout: Option<Span>,

    /// The most connections of clients at a time; more wait in the backlog [default: 10000]
    #[arg(long, env = "SEMEL_MAX_CONNECTIONS", value_name = "NUMBER")]
    pub(crate) max_connections: Option<usize>,

    #[command(flatten)]
    pub(crate) limits: LimitSettings,

    /// What becomes of a request with a key that no route covers [default: refuse if there are
    /// routes, else pass]
    ///
    /// Its client believes that a repeat is safe. It counts on POST, PUT, PATCH and DELETE.
    #[arg(long, env = "SEMEL_UNCOVERED", value_name = "WHAT")]
    pub(crate) uncovered: Option<Uncovered>,

    /// What becomes of header fields with an underscore in their name [default: drop]
    ///
    /// Services behind CGI, WSGI and the like take `X_User` for `X-User`. Allowed, they are passed
    /// on unless they could be taken for a field that the gateway itself counts on.
    #[arg(long, env = "SEMEL_UNDERSCORES", value_name = "WHAT")]
    pub(crate) underscores: Option<Underscores>,

    /// The most memory for bodies of requests with a key and of their answers, half for each;
    /// without room a request gets 503 [default: 256MiB]
    #[arg(long, env = "SEMEL_MAX_MEMORY", value_name = "SIZE")]
    pub(crate) max_memory: Option<Size>,

    /// How long a WebSocket may be idle in both directions [default: 5m]
    #[arg(long, env = "SEMEL_WEBSOCKET_TIMEOUT", value_name = "DURATION")]
    pub(crate) websocket_timeout: Option<Span>,

    /// Serve TLS with the certificates of this PEM file; needs --tls-key
    #[arg(long, env = "SEMEL_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key for --tls-cert, a PEM file
    #[arg(long, env = "SEMEL_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Trust the certificates of this PEM file for https upstreams, beside those of the system
    #[arg(long, env = "SEMEL_UPSTREAM_CA", value_name = "FILE")]
    pub(crate) upstream_ca: Option<PathBuf>,

    /// How long to wait for requests under way when told to stop [default: 30s]
    #[arg(long, env = "SEMEL_DRAIN", value_name = "DURATION")]
    pub(crate) drain: Option<Span>,

    /// Bring the schema of the store up to date at the start [default: true for SQLite, else false]
    #[arg(long, env = "SEMEL_MIGRATE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) migrate: Option<bool>,

    /// Put every answer into the cache at once, and ask the cache first for every request [default:
    /// false]
    ///
    /// Otherwise the first repeat of a key does that, and the cache is asked first only while at
    /// least one in eight requests with a key is a repeat, so that new keys do not pay for it.
    #[arg(long, env = "SEMEL_CACHE_FIRST", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) cache_first: Option<bool>,

    /// Remove expired records in the background [default: true]
    #[arg(long, env = "SEMEL_PRUNE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) prune: Option<bool>,

    /// A file with the secret that seals the one by which principals are made of credentials
    ///
    /// One secret a line, of 16 characters or more: the first seals, all of them open. All gateways
    /// of a store need it. SEMEL_PRINCIPAL_SECRET may hold the secrets themselves instead,
    /// separated by spaces.
    #[arg(long, env = "SEMEL_PRINCIPAL_SECRET_FILE", value_name = "FILE")]
    pub(crate) principal_secret_file: Option<PathBuf>,

    /// How log lines look: `text` or `json` [default: text]
    #[arg(long, env = "SEMEL_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// Routes, which only the file can set.
    #[arg(skip)]
    pub(crate) routes: Option<Vec<Route>>,
}

/// Which store.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreSettings {
    /// Where the records are [default: sqlite:semel.db]
    ///
    /// sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, redis://HOST, or memory: (which forgets
    /// everything at the end).
    #[arg(long, env = "SEMEL_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// What answers repeats before the store: redis://HOST, or memory:64MiB
    #[arg(long, env = "SEMEL_CACHE", value_name = "URL", hide_env_values = true)]
    pub(crate) cache: Option<String>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// An object a line
    Json,
}
