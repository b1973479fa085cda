//! The settings of `--scope jwt`: the requirements for tokens, and the source of their keys.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use http::Uri;
use http::uri::{Authority, Scheme};

use super::RouteSettings;

/// The verification of a token, and the claim that identifies the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JwtConfig {
    pub(crate) keys: KeysAt,
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) claim: String,
}

/// The source of an issuer's public keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum KeysAt {
    File(PathBuf),
    Url(Uri),
}

impl JwtConfig {
    /// # Errors
    /// If a setting is missing: the gateway answers replays itself, so it has to know the issuer
    /// and the audience of a token.
    pub(super) fn new(settings: &RouteSettings) -> Result<Self> {
        let needed = |name: &str, value: &Option<String>| {
            let value = value.clone().filter(|value| !value.is_empty());
            value.with_context(|| format!("the scope `jwt` needs {name}"))
        };
        let claim = settings.claim.clone().unwrap_or_else(|| "sub".to_owned());
        let issuer = needed("issuer", &settings.issuer)?;
        // The principal is these words joined by spaces, so none may contain one.
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        ensure!(is_word(&issuer), "the issuer `{issuer}` has a space or a control character");
        ensure!(is_word(&claim), "`{claim}` is no claim");
        Ok(Self {
            keys: needed("jwks, a file or URL with the public keys of the issuer", &settings.jwks)?
                .parse()?,
            audience: needed("audience", &settings.audience)?,
            issuer,
            claim,
        })
    }
}

/// The name of the first setting for tokens that is set.
pub(super) fn setting_of(settings: &RouteSettings) -> Option<&'static str> {
    let RouteSettings { jwks, issuer, audience, claim, .. } = settings;
    let all = [("jwks", jwks), ("issuer", issuer), ("audience", audience), ("claim", claim)];
    all.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
}

/// Refuses a setting for tokens where no token is verified, because its operator expects
/// verification.
///
/// # Errors
/// If the setting is set and not used.
pub(super) fn ensure_used(named: Option<&str>, is_used: bool) -> Result<()> {
    match named {
        Some(name) if !is_used => {
            bail!(
                "{name} is set, and no scope is `jwt`, so no token is verified: set `scope = \"jwt\"`, or remove {name}"
            )
        }
        _ => Ok(()),
    }
}

impl std::str::FromStr for KeysAt {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        ensure!(!text.contains('@'), "jwks has a login, which is not supported");
        // The query is left out, because it may hold a secret.
        let shown = text.split('?').next().unwrap_or_default();
        let uri: Uri = text.parse().with_context(|| format!("jwks `{shown}` is not a URL"))?;
        let is_local = uri.host().is_some_and(|host| {
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
        });
        let is_safe = uri.scheme() == Some(&Scheme::HTTPS) || uri.scheme() == Some(&Scheme::HTTP) && is_local;
        ensure!(is_safe, "jwks `{shown}` is neither an https URL, nor an http URL of this host, nor a file");
        Ok(Self::Url(uri))
    }
}

impl fmt::Display for KeysAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            // The query is left out, because it may hold a secret.
            Self::Url(uri) => {
                let (scheme, authority) = (uri.scheme_str(), uri.authority().map_or("", Authority::as_str));
                write!(f, "{}://{authority}{}", scheme.unwrap_or_default(), uri.path())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_a_file_or_over_a_safe_way() {
        for good in [
            "keys.json",
            "/etc/keys.json",
            "https://issuer.example/keys",
            "http://127.0.0.1:1/keys",
            "http://[::1]/",
        ] {
            assert_eq!(good.parse::<KeysAt>().unwrap().to_string(), good);
        }
        for bad in [
            "http://issuer.example/keys",
            "ftp://127.0.0.1/",
            "https://u:p@issuer.example/",
            "http://127.0.0.1.evil/",
        ] {
            assert!(bad.parse::<KeysAt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_query_of_a_url_is_not_shown() {
        let shown = "https://issuer.example/keys?token=secret".parse::<KeysAt>().unwrap().to_string();
        assert_eq!(shown, "https://issuer.example/keys");
        let refused = "http://issuer.example/keys?token=secret".parse::<KeysAt>().unwrap_err();
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
}
