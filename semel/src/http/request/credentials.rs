//! The credentials in a request that distinguish its caller.

use std::sync::Arc;

use ::http::HeaderMap;
use ::http::header::{AUTHORIZATION, COOKIE, HeaderName};

/// A part of a request that identifies its caller, such as a header with a token.
///
/// A credential should be the same in every repeat: a repeat with another value is another caller's
/// request, and **runs again**.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// A header, with all its values.
    Header(HeaderName),
    /// The cookie of this name. Other cookies do not count.
    Cookie(Arc<str>),
}

impl Credential {
    /// The cookie of this name.
    pub fn cookie(name: &str) -> Self {
        Self::Cookie(Arc::from(name))
    }

    /// The default credentials: headers that commonly contain a key or a token that identifies the
    /// caller and stays the same for a while.
    ///
    /// Headers are left out if they change from request to request (signatures, proofs of
    /// possession, CSRF tokens), name a session rather than a caller, or are for a proxy. Cookies
    /// are left out because most of them do not identify a caller, and they may change at any time.
    pub fn common() -> Vec<Self> {
        let others = ["x-api-key", "api-key", "x-auth-token", "x-access-token"].map(HeaderName::from_static);
        [AUTHORIZATION].into_iter().chain(others).map(Self::Header).collect()
    }

    /// Returns `true` if a header's name suggests that its value is a secret: it contains `auth`,
    /// `token`, `key`, `secret`, `session`, `cookie` or `password`.
    pub fn is_likely_in(name: &HeaderName) -> bool {
        Self::is_likely(name.as_str())
    }

    /// Returns `true` if this name, in lower case, is that of a credential.
    pub(in crate::http) fn is_likely(name: &str) -> bool {
        // The following two belong to a request rather than to a caller.
        let words = ["auth", "token", "key", "secret", "session", "cookie", "password"];
        words.iter().any(|word| name.contains(word))
            && !["idempotency-key", "sec-websocket-key"].contains(&name)
    }

    /// The values in a request; none if all of them are blank.
    pub(in crate::http) fn values<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a [u8]> {
        let mut values: Vec<&[u8]> = match self {
            Self::Header(name) => headers.get_all(name).iter().map(|value| value.as_bytes()).collect(),
            Self::Cookie(name) => headers
                .get_all(COOKIE)
                .iter()
                .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
                .filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
                .collect(),
        };
        if values.iter().all(|value| value.trim_ascii().is_empty()) {
            values.clear();
        }
        values
    }

    /// Returns `true` if a request has it, and it is not blank.
    pub(in crate::http) fn is_in(&self, headers: &HeaderMap) -> bool {
        let may_be = match self {
            Self::Header(name) => headers.contains_key(name),
            Self::Cookie(_) => headers.contains_key(COOKIE),
        };
        may_be && !self.values(headers).is_empty()
    }

    /// The kind and the name, for digests.
    pub(in crate::http) fn label(&self) -> (&'static [u8], &[u8]) {
        match self {
            Self::Header(name) => (b"header", name.as_str().as_bytes()),
            Self::Cookie(name) => (b"cookie", name.as_bytes()),
        }
    }
}

impl From<HeaderName> for Credential {
    fn from(name: HeaderName) -> Self {
        Self::Header(name)
    }
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name) => f.write_str(name.as_str()),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn one_cookie_is_found_among_others() {
        let sent = headers(&[("cookie", "a=1; sid=x=y;  b=2"), ("cookie", "SID=no; xsid=no; sid")]);
        let values = |name| Credential::cookie(name).values(&sent);
        assert_eq!(values("sid"), [b"x=y"]);
        assert_eq!(values("b"), [b"2"]);
        assert!(values("absent").is_empty() && values("id").is_empty());
        assert!(Credential::cookie("sid").values(&headers(&[("cookie", "sid=")])).is_empty());
    }

    #[test]
    fn a_blank_header_identifies_no_caller() {
        let authorization = Credential::from(AUTHORIZATION);
        assert!(authorization.values(&headers(&[("authorization", " ")])).is_empty());
        assert_eq!(authorization.values(&headers(&[("authorization", "a")])), [b"a"]);
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in
            ["x-auth-token", "cookie", "x-api-key", "x-session", "proxy-authorization", "x-csrf-token"]
        {
            assert!(Credential::is_likely_in(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["x-user-id", "idempotency-key", "host", "accept", "keep-alive", "x-request-id"] {
            assert!(!Credential::is_likely_in(&HeaderName::from_static(name)), "{name}");
        }
    }
}
