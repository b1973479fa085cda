//! Settings that are more than a number.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// Where the admin listener is, if there is one.
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

/// Whose key it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scoping {
    /// A digest of the credentials.
    Credentials,
    /// The value of a header that somebody before us vouches for.
    Header(HeaderName),
    /// Everybody's.
    None,
}

impl FromStr for Scoping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "credentials" => Ok(Self::Credentials),
            "none" => Ok(Self::None),
            _ => {
                let name = text.strip_prefix("header:").map(str::trim).and_then(|name| name.parse().ok());
                name.map(Self::Header).ok_or_else(|| {
                    format!("`{text}` is none of `credentials`, `header:NAME` (such as header:X-User-Id) and `none`")
                })
            }
        }
    }
}

impl fmt::Display for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials => f.write_str("credentials"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// What becomes of a request with a key that no route covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Uncovered {
    /// It is passed on without protection
    Pass,
    /// It is refused: its client believes that a repeat is safe
    Refuse,
}

/// What becomes of header fields with an underscore in their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Underscores {
    /// They are passed on, unless they could be taken for a field that the gateway counts on
    Allow,
    /// They are dropped: for many services an underscore is a hyphen
    Drop,
}

/// Whether spellings of a path are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spelling {
    /// They are other paths
    Exact,
    /// They are the same path
    Ignore,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The secret of a file: its text, without white space around it.
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

    /// Whether this is the secret. How long the comparison takes does not tell how much of it is right.
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
            Self::Credentials => vec![AUTHORIZATION, COOKIE, HeaderName::from_static("x-api-key")],
            Self::Header(name) => vec![name.clone()],
            Self::None => Vec::new(),
        }
    }
}

/// Both are text in the file.
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
    fn a_scope_is_one_of_three() {
        for text in ["credentials", "none", "header:x-user-id"] {
            assert_eq!(text.parse::<Scoping>().unwrap().to_string(), text);
        }
        for bad in ["", "header", "header:", "header:a b", "everyone"] {
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
