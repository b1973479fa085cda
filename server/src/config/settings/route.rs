//! The settings that a route can have of its own.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::config::units::{Size, Span};
use crate::config::words::{AnonymousCallers, Scoping, Spelling};

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
