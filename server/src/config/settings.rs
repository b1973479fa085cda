//! The settings: each is a flag, a variable and a key of the file.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::limits::LimitSettings;
use super::units::{Size, Span};
use super::words::{Admin, AnonymousCallers, Scoping, Spelling, Uncovered, Underscores};

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
    pub(crate) place: Place,

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
pub(crate) struct Place {
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

/// What a route can set, and all routes together.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RouteSettings {
    /// What happens when an attempt was lost [default: hold]
    #[arg(long, env = "SEMEL_POLICY", value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,

    /// For how long an attempt may run without being heard of [default: 30s]
    #[arg(long, env = "SEMEL_LEASE", value_name = "DURATION")]
    pub(crate) lease: Option<Span>,

    /// For how long an outcome is remembered [default: 24h]
    #[arg(long, env = "SEMEL_RETENTION", value_name = "DURATION")]
    pub(crate) retention: Option<Span>,

    /// For how long a repeat waits for the attempt that runs, instead of being refused [default:
    /// 0s]
    #[arg(long, env = "SEMEL_WAIT", value_name = "DURATION")]
    pub(crate) wait: Option<Span>,

    /// How long the upstream may take to answer, and to go on with its answer [default: 30s]
    #[arg(long, env = "SEMEL_UPSTREAM_TIMEOUT", value_name = "DURATION")]
    pub(crate) upstream_timeout: Option<Span>,

    /// The largest body of a request with a key [default: 1MiB]
    #[arg(long, env = "SEMEL_MAX_BODY", value_name = "SIZE")]
    pub(crate) max_body: Option<Size>,

    /// The largest body of a response that is recorded; a larger one is passed on, and recorded
    /// without it [default: 1MiB]
    #[arg(long, env = "SEMEL_MAX_RESPONSE", value_name = "SIZE")]
    pub(crate) max_response: Option<Size>,

    /// Record these headers of a response, too, and replay them
    ///
    /// Recorded anyway are those that describe the content, the security headers and those of CORS.
    /// Cookies, credentials and what belongs to a connection never are.
    #[arg(long, env = "SEMEL_RECORD_HEADER", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) record_header: Option<Vec<String>>,

    /// Whether `/charges/` is `/charges`, for routes and for repeats [default: exact]
    #[arg(long, env = "SEMEL_TRAILING_SLASH", value_name = "HOW")]
    pub(crate) trailing_slash: Option<Spelling>,

    /// Whether `/Charges` is `/charges`, for routes and for repeats [default: exact]
    ///
    /// It counts for what the path of the route spells out, not for what `{name}` and `*` stand
    /// for.
    #[arg(long, env = "SEMEL_CASE", value_name = "HOW")]
    pub(crate) case: Option<Spelling>,

    /// The methods on which a key counts [default: POST,PUT,PATCH,DELETE]
    #[arg(long, env = "SEMEL_METHODS", value_name = "METHODS", value_delimiter = ',')]
    pub(crate) methods: Option<Vec<String>>,

    /// Refuse POST and PATCH without a key [default: false]
    #[arg(long, env = "SEMEL_REQUIRE_KEY", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) require_key: Option<bool>,

    /// The identification of callers: `credentials`, `credentials:NAME,NAME`, `cookie:NAME`,
    /// `header:NAME`, `jwt` or `none` [default: credentials]
    ///
    /// `credentials` takes a keyed digest of the headers Authorization, X-Api-Key, Api-Key,
    /// X-Auth-Token and X-Access-Token, or of those that are named. `cookie:NAME` takes one cookie.
    /// `header:NAME` believes the header that something in front of the gateway has set, and must
    /// have kept clients from setting; `header:NAME:secret` takes a digest of it. `jwt` verifies a
    /// bearer token; it needs --jwks, --issuer and --audience. `none` takes all callers for one.
    #[arg(long, env = "SEMEL_SCOPE", value_name = "SCOPE")]
    pub(crate) scope: Option<Scoping>,

    /// What requests with a key get that have none of the credentials: `share` makes all of them
    /// one caller [default: refuse]
    ///
    /// If the gateway listens on a loopback address and this is not set, they share as well, unless
    /// they show a sign of other callers: a header of a proxy (such as Forwarded, Via,
    /// X-Forwarded-*, X-Real-IP, CF-*, X-Envoy-*), or one whose name suggests a credential or a
    /// user, such as Cookie.
    #[arg(long, env = "SEMEL_ANONYMOUS", value_name = "WHAT")]
    pub(crate) anonymous: Option<AnonymousCallers>,

    /// Where the public keys for `jwt` are: a file, or an https URL (http on loopback only)
    #[arg(long, env = "SEMEL_JWKS", value_name = "FILE|URL")]
    pub(crate) jwks: Option<String>,

    /// The issuer (`iss`) that a token must have
    #[arg(long, env = "SEMEL_ISSUER", value_name = "ISSUER")]
    pub(crate) issuer: Option<String>,

    /// The audience (`aud`) that a token must be for
    #[arg(long, env = "SEMEL_AUDIENCE", value_name = "AUDIENCE")]
    pub(crate) audience: Option<String>,

    /// The claim of a token that identifies the caller [default: sub]
    #[arg(long, env = "SEMEL_CLAIM", value_name = "CLAIM")]
    pub(crate) claim: Option<String>,
}

/// A route in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Route {
    /// The pattern of its paths: `/charges`, `/orders/{id}/lines`, `/v1/*`.
    pub(crate) path: String,
    /// The upstream, if it differs from the general one.
    pub(crate) upstream: Option<String>,
    /// The settings that differ from the general ones.
    pub(crate) settings: RouteSettings,
}

/// The policy after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicyName {
    /// Nothing runs again until an operator or the service settles the key
    Hold,
    /// The next attempt takes over, and runs again
    Retry,
    /// As retry, for services that complete in their own transaction with the SQL function
    Transactional,
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

/// The keys of a group of settings in the file, and their precedence over another source.
///
/// This is written by hand because `serde(flatten)` loses the line numbers of errors.
macro_rules! keys {
    ($group:ident { $($field:ident = $($key:literal)|+),+ $(,)? }) => {
        impl $group {
            /// The names of the keys.
            #[cfg(test)]
            const KEYS: &[&str] = &[$( [$($key),+][0] ),+];

            /// Reads the value of a key of this group; `false` if the key is not of this group.
            fn read<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<bool, M::Error> {
                match key {
                    $( $($key)|+ => self.$field = Some(map.next_value()?), )+
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Fills the settings that are not set here from another source.
            fn fill(&mut self, others: Self) {
                $( if self.$field.is_none() { self.$field = others.$field; } )+
            }
        }
    };
}

keys!(Settings {
    listen = "listen",
    upstream = "upstream",
    admin = "admin",
    admin_host = "admin-host",
    admin_token_file = "admin-token-file",
    uncovered = "uncovered",
    underscores = "underscores",
    realm = "realm",
    header_timeout = "header-timeout",
    body_timeout = "body-timeout",
    max_connections = "max-connections",
    max_memory = "max-memory",
    websocket_timeout = "websocket-timeout",
    tls_cert = "tls-cert",
    tls_key = "tls-key",
    upstream_ca = "upstream-ca",
    drain = "drain",
    migrate = "migrate",
    prune = "prune",
    principal_secret_file = "principal-secret-file",
    log_format = "log-format",
    routes = "route",
});

keys!(LimitSettings {
    max_attempts = "max-attempts",
    max_store = "max-store",
    max_unsettled_per_caller = "max-unsettled-per-caller",
    max_new_per_caller = "max-new-per-caller",
});

keys!(Place { store = "store", cache = "cache" });

keys!(RouteSettings {
    policy = "policy",
    lease = "lease",
    retention = "retention",
    wait = "wait",
    upstream_timeout = "upstream-timeout",
    max_body = "max-body",
    max_response = "max-response",
    methods = "methods",
    require_key = "require-key" | "required",
    scope = "scope",
    record_header = "record-header",
    trailing_slash = "trailing-slash",
    case = "case",
    anonymous = "anonymous",
    jwks = "jwks",
    issuer = "issuer",
    audience = "audience",
    claim = "claim",
});

impl Settings {
    /// These settings, with gaps filled from the file.
    pub(crate) fn or(mut self, file: Self) -> Self {
        let Self { place, route, limits, .. } = &file;
        self.place.fill(place.clone());
        self.limits.fill(limits.clone());
        self.route.fill(route.clone());
        self.fill(file);
        self
    }
}

impl Place {
    pub(crate) fn or(mut self, others: Self) -> Self {
        self.fill(others);
        self
    }
}

impl RouteSettings {
    pub(crate) fn or(mut self, others: Self) -> Self {
        self.fill(others);
        self
    }
}

/// The file or one of its routes: a table whose keys each belong to a group.
trait Table: Default {
    fn read_key<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<bool, M::Error>;
}

impl Table for Settings {
    fn read_key<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<bool, M::Error> {
        Ok(self.read(key, map)?
            || self.place.read(key, map)?
            || self.limits.read(key, map)?
            || self.route.read(key, map)?)
    }
}

impl Table for Route {
    fn read_key<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<bool, M::Error> {
        match key {
            "path" => self.path = map.next_value()?,
            "upstream" => self.upstream = Some(map.next_value()?),
            _ => return self.settings.read(key, map),
        }
        Ok(true)
    }
}

/// Reads a table key by key.
struct Reader<T>(PhantomData<T>);

impl<'de, T: Table> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut table = T::default();
        while let Some(key) = map.next_key::<String>()? {
            if !table.read_key(&key, &mut map)? {
                map.next_value_seed(Unknown(&key))?;
            }
        }
        Ok(table)
    }
}

/// The value of an unknown key: the error points to the line of the value.
struct Unknown<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Unknown<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(de::Error::custom(format!("there is no setting `{}`", self.0)))
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Reader(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Route {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let route: Self = from.deserialize_map(Reader(PhantomData))?;
        if route.path.is_empty() {
            return Err(de::Error::custom("a route needs a path, such as path = \"/charges\""));
        }
        Ok(route)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    /// Every setting, and its default as the help shows it.
    fn all() -> BTreeMap<String, String> {
        let args = Args::command();
        let gateway = args.find_subcommand("gateway").expect("the command");
        let keys = [Settings::KEYS, LimitSettings::KEYS, Place::KEYS, RouteSettings::KEYS].concat();
        let keys = keys.into_iter().filter(|key| *key != "route");
        let default = |key: &str| {
            let flag = gateway.get_arguments().find(|flag| flag.get_long() == Some(key)).expect(key);
            let help = flag.get_help().expect(key).to_string();
            help.split_once("[default: ")
                .map_or_else(String::new, |(_, rest)| rest.trim_end_matches(']').to_owned())
        };
        keys.map(|key| (key.to_owned(), default(key))).collect()
    }

    fn read(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        std::fs::read_to_string(path).expect(file)
    }

    #[test]
    fn every_flag_is_a_key_of_the_file() {
        let args = Args::command();
        let gateway = args.find_subcommand("gateway").expect("the command");
        let flags = gateway.get_arguments().filter_map(clap::Arg::get_long);
        // The file cannot name itself.
        let flags = flags.filter(|flag| !["config", "help", "version"].contains(flag));
        let known = all();
        assert_eq!(flags.filter(|flag| !known.contains_key(*flag)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn the_page_has_every_setting_with_its_default() {
        let page = read("docs/gateway.md");
        let section =
            page.split("\n## ").find(|section| section.starts_with("Settings\n")).expect("a section");
        let rows = section.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.trim().to_owned()))
        });
        assert_eq!(rows.collect::<BTreeMap<_, _>>(), all());
    }

    #[test]
    fn the_packaged_file_has_every_setting_and_each_of_its_lines_can_be_used() {
        let file = read("packaging/semel.toml");
        let general = file.split("[[route]]").next().expect("the settings of all routes");
        let settings = file.lines().filter_map(|line| {
            let line = line.trim_start_matches("# ");
            let (key, _) = line.split_once(" = ")?;
            key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-').then_some((key, line))
        });
        let settings: Vec<_> = settings.collect();
        for key in all().keys() {
            assert!(settings.iter().any(|(named, _)| named == key), "{key} is not in the file");
        }
        for (key, line) in settings.into_iter().filter(|(key, _)| *key != "path") {
            let read = toml::from_str::<Settings>(line);
            assert!(read.is_ok(), "{key}: {line}: {read:?}");
        }
        toml::from_str::<Settings>(general).expect("the file as it is");
    }
}
