//! The file of settings, and its precedence.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{Route, RouteSettings, Settings, StoreSettings};
use crate::config::limits::LimitSettings;

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

/// The keys of a group of settings in the file, and their precedence over another source.
///
/// This is written by hand because `serde(flatten)` loses the line numbers of errors.
macro_rules! keys {
    ($group:ident { $($field:ident = $($key:literal)|+),+ $(,)? }) => {
        impl $group {
            /// The names of the keys.
            #[cfg(test)]
            pub(super) const KEYS: &[&str] = &[$( [$($key),+][0] ),+];

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
    cache_first = "cache-first",
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

keys!(StoreSettings { store = "store", cache = "cache" });

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

impl StoreSettings {
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
