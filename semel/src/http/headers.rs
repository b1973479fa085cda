//! Which headers of a response are recorded.

use ::http::HeaderMap;
use ::http::header::{self, HeaderName};
use thiserror::Error;

/// What describes the content or the resource, and nothing about a caller, a connection or a moment.
const RECORDED: [HeaderName; 16] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LOCATION,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::CACHE_CONTROL,
    header::EXPIRES,
    header::VARY,
    header::RETRY_AFTER,
    header::ALLOW,
    HeaderName::from_static("preference-applied"),
    HeaderName::from_static("deprecation"),
];

/// What is never recorded: it belongs to one caller or to one connection.
const NEVER: [HeaderName; 16] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::COOKIE,
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    HeaderName::from_static("authentication-info"),
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::DATE,
];

/// What describes a body, and would be wrong without it.
const OF_THE_BODY: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_DISPOSITION];

pub(super) fn is_never_recorded(name: &HeaderName) -> bool {
    NEVER.contains(name)
}

pub(super) fn is_of_the_body(name: &HeaderName) -> bool {
    OF_THE_BODY.contains(name)
}

/// The allow list.
#[derive(Debug, Clone)]
pub(super) struct Recorded(Vec<HeaderName>);

impl Recorded {
    /// The list with one more.
    pub(super) fn with(mut self, name: HeaderName) -> Result<Self, HeaderRefused> {
        if NEVER.contains(&name) {
            return Err(HeaderRefused { name });
        }
        self.0.push(name);
        Ok(self)
    }

    /// Those of a response that are on the list, in its order.
    pub(super) fn of<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let listed = headers.iter().filter(|(name, _)| self.0.contains(name));
        listed.map(|(name, value)| (name.as_str(), value.as_bytes()))
    }
}

impl Default for Recorded {
    fn default() -> Self {
        Self(RECORDED.to_vec())
    }
}

/// A header that must not be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the header {name} belongs to one caller or one connection and cannot be recorded")]
pub struct HeaderRefused {
    name: HeaderName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_and_connections_are_not_recorded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "<b>"),
            ("set-cookie", "a=1"),
            ("content-type", "text/plain"),
            ("link", "<a>"),
            ("connection", "close"),
            ("x-own", "1"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let names = |recorded: &Recorded| -> Vec<String> {
            recorded.of(&headers).map(|(name, value)| format!("{name}: {}", value.escape_ascii())).collect()
        };
        let own = Recorded::default().with(HeaderName::from_static("x-own")).unwrap();
        assert_eq!(names(&Recorded::default()).len(), 3);
        assert_eq!(names(&own).len(), 4);
        let links: Vec<_> = names(&own).into_iter().filter(|line| line.starts_with("link")).collect();
        assert_eq!(links, ["link: <b>", "link: <a>"]);
        for name in NEVER {
            assert!(Recorded::default().with(name.clone()).is_err(), "{name}");
            assert!(!RECORDED.contains(&name), "{name}");
        }
    }
}
