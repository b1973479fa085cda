//! Settings with a syntax of their own.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};
use semel::http::Credential;
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// The address of the admin listener, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admin {
    Off,
    At(SocketAddr),
}

impl FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At).map_err(|_| {
                format!("`{text}` is neither an address with a port, such as 127.0.0.1:9180, nor `off`")
            }),
        }
    }
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// The scope: how callers are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scoping {
    /// A keyed digest of these headers and cookies; of the common ones if the list is empty.
    Credentials(Vec<Credential>),
    /// The value of a header that a proxy in front of the gateway sets; a keyed digest of it if it
    /// is a secret.
    Header { name: HeaderName, is_secret: bool },
    /// A claim of a token that the gateway verifies.
    Jwt,
    /// No identification: all callers are one.
    None,
}

impl Scoping {
    /// The credentials, if callers are identified by credentials.
    pub(crate) fn credentials(&self) -> Option<Vec<Credential>> {
        match self {
            Self::Credentials(named) if named.is_empty() => Some(Credential::common()),
            Self::Credentials(named) => Some(named.clone()),
            Self::Header { name, is_secret: true } => Some(vec![name.clone().into()]),
            Self::Header { .. } | Self::Jwt | Self::None => None,
        }
    }
}

impl FromStr for Scoping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "`{text}` is none of `credentials`, `credentials:NAME,NAME` (such as credentials:X-Auth-Token,Authorization), \
                 `cookie:NAME`, `header:NAME` (such as header:X-User-Id), `header:NAME:secret`, `jwt` and `none`"
            )
        };
        match text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest.trim()))) {
            ("credentials", None) => Ok(Self::Credentials(Vec::new())),
            ("credentials", Some(names)) => {
                let named = names.split(',').map(|name| credential(name.trim())).collect::<Option<_>>();
                named.map(Self::Credentials).ok_or_else(unknown)
            }
            ("cookie", Some(_)) => {
                credential(text).map(|cookie| Self::Credentials(vec![cookie])).ok_or_else(unknown)
            }
            ("header", Some(rest)) => {
                let (name, said) = rest.strip_suffix(":secret").map_or((rest, false), |name| (name, true));
                let name: HeaderName = name.parse().map_err(|_| unknown())?;
                Ok(Self::Header { is_secret: said || Credential::is_likely_in(&name), name })
            }
            ("jwt", None) => Ok(Self::Jwt),
            ("none", None) => Ok(Self::None),
            _ => Err(unknown()),
        }
    }
}

/// A header's name, or `cookie:` and the name of a cookie.
fn credential(text: &str) -> Option<Credential> {
    match text.strip_prefix("cookie:").map(str::trim) {
        // Names of headers and of cookies allow the same characters.
        Some(name) => HeaderName::from_bytes(name.as_bytes()).is_ok().then(|| Credential::cookie(name)),
        None => HeaderName::from_bytes(text.as_bytes()).ok().map(Credential::from),
    }
}

impl fmt::Display for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(named) if named.is_empty() => f.write_str("credentials"),
            Self::Credentials(named) => match &**named {
                [cookie @ Credential::Cookie(_)] => cookie.fmt(f),
                named => {
                    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
                    write!(f, "credentials:{}", named.join(","))
                }
            },
            Self::Header { name, is_secret: true } => write!(f, "header:{name}:secret"),
            Self::Header { name, .. } => write!(f, "header:{name}"),
            Self::Jwt => f.write_str("jwt"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The treatment of a request with a key that no route covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Uncovered {
    /// It is passed on without protection
    Pass,
    /// It is refused: its client believes that a repeat is safe
    Refuse,
}

/// The treatment of header fields with an underscore in their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Underscores {
    /// They are passed on, unless they could be taken for a field that the gateway counts on
    Allow,
    /// They are dropped: for many services an underscore is a hyphen
    Drop,
}

/// The comparison of spellings of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spelling {
    /// They are other paths
    Exact,
    /// They are the same path
    Ignore,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Reads the secret of a file: its text, without white space around it.
    ///
    /// # Errors
    /// If the file cannot be read, or holds less than a secret needs.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
        let text = text.trim();
        let shown = path.display();
        ensure!(
            text.len() >= 16,
            "the token in {shown} has less than 16 characters; make one with `openssl rand -hex 32`"
        );
        ensure!(
            text.bytes().all(|byte| byte.is_ascii_graphic()),
            "the token in {shown} holds white space or characters outside of ASCII"
        );
        Ok(Self(text.to_owned()))
    }

    /// Compares with the secret in constant time.
    pub(crate) fn is(&self, offered: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing = own.iter().zip(offered).fold(0, |all, (own, offered)| all | (own ^ offered));
        own.len() == offered.len() && differing == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Scoping {
    /// The header fields that tell callers apart.
    pub(crate) fn headers(&self) -> Vec<HeaderName> {
        match self {
            Self::Credentials(_) => {
                self.credentials().unwrap_or_default().into_iter().map(header_of).collect()
            }
            Self::Header { name, .. } => vec![name.clone()],
            Self::Jwt => vec![AUTHORIZATION],
            Self::None => Vec::new(),
        }
    }
}

/// The header field that carries a credential.
fn header_of(credential: Credential) -> HeaderName {
    match credential {
        Credential::Header(name) => name,
        // All other credentials are cookies.
        _ => COOKIE,
    }
}

/// The treatment of callers without credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AnonymousCallers {
    /// They are one caller
    Share,
    /// Their keys are refused
    Refuse,
}

/// Reads either setting as text from the file.
macro_rules! as_text {
    ($($word:ty),+) => { $(
        impl<'de> Deserialize<'de> for $word {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $word {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )+ };
}

as_text!(Admin, Scoping);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_and_shown() {
        for text in [
            "credentials",
            "credentials:x-auth-token,authorization",
            "credentials:authorization,cookie:sid",
            "cookie:sid",
            "header:x-user-id",
            "header:x-user:secret",
            "jwt",
            "none",
        ] {
            assert_eq!(text.parse::<Scoping>().unwrap().to_string(), text);
        }
        // A name that looks like a credential is treated as one.
        assert_eq!(
            "header:X-Session-Id".parse::<Scoping>().unwrap().to_string(),
            "header:x-session-id:secret"
        );
        for bad in [
            "",
            "header",
            "header:",
            "header:a b",
            "cookie",
            "cookie:",
            "credentials:",
            "credentials:a,,b",
            "jwt:a",
            "me",
        ] {
            assert!(bad.parse::<Scoping>().is_err(), "{bad}");
        }
    }

    #[test]
    fn admin_is_an_address_or_off() {
        for text in ["off", "127.0.0.1:9180", "[::1]:1"] {
            assert_eq!(text.parse::<Admin>().unwrap().to_string(), text);
        }
        assert!("9180".parse::<Admin>().is_err());
    }
}
