//! The headers of a response that are recorded.

use ::http::HeaderMap;
use ::http::header::{self, HeaderName};
use thiserror::Error;

/// The headers that describe the content or the resource, and those that instruct a browser how to
/// treat it. None is about a caller, a connection or a moment. The permissions of CORS are part of
/// the first answer: a browser refuses to show a replay to another origin.
const RECORDED: [HeaderName; 34] = [
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
    header::X_CONTENT_TYPE_OPTIONS,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_SECURITY_POLICY_REPORT_ONLY,
    header::X_FRAME_OPTIONS,
    header::STRICT_TRANSPORT_SECURITY,
    header::REFERRER_POLICY,
    HeaderName::from_static("permissions-policy"),
    HeaderName::from_static("cross-origin-opener-policy"),
    HeaderName::from_static("cross-origin-embedder-policy"),
    HeaderName::from_static("cross-origin-resource-policy"),
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
    HeaderName::from_static("timing-allow-origin"),
    HeaderName::from_static("x-permitted-cross-domain-policies"),
];

/// The headers that belong to one connection, from one hop to the next.
pub const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The headers that belong to one caller.
const OF_ONE_CALLER: [HeaderName; 5] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::COOKIE,
    header::AUTHORIZATION,
    HeaderName::from_static("authentication-info"),
];

/// The headers that belong to one message, and are made for each.
const OF_ONE_MESSAGE: [HeaderName; 3] = [header::TRAILER, header::CONTENT_LENGTH, header::DATE];

/// The headers that describe a body, and would be wrong without it.
const OF_THE_BODY: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_DISPOSITION];

/// Returns `true` for a header that belongs to one caller, one connection or one message.
pub(in crate::http) fn is_never_recorded(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || OF_ONE_CALLER.contains(name) || OF_ONE_MESSAGE.contains(name)
}

pub(in crate::http) fn is_of_the_body(name: &HeaderName) -> bool {
    OF_THE_BODY.contains(name)
}

/// The allow list.
#[derive(Debug, Clone)]
pub(in crate::http) struct Recorded(Vec<HeaderName>);

impl Recorded {
    /// Adds a header to the list.
    pub(in crate::http) fn add(&mut self, name: HeaderName) {
        self.0.push(name);
    }

    /// Checks that every header on the list may be recorded.
    pub(in crate::http) fn check(&self) -> Result<(), HeaderRefused> {
        self.0.iter().try_for_each(may_record)
    }

    /// The headers of a response that are on the list, in its order.
    pub(in crate::http) fn of<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let listed = headers.iter().filter(|(name, _)| self.0.contains(name));
        listed.map(|(name, value)| (name.as_str(), value.as_bytes()))
    }
}

impl Default for Recorded {
    fn default() -> Self {
        Self(RECORDED.to_vec())
    }
}

/// The check of
/// [`IdempotencyLayer::with_recorded_header`](crate::http::IdempotencyLayer::with_recorded_header),
/// for configurations that are validated before there is a layer.
///
/// # Errors
/// [`HeaderRefused`] if it belongs to one caller or one connection.
pub fn may_record(name: &HeaderName) -> Result<(), HeaderRefused> {
    if is_never_recorded(name) { Err(HeaderRefused { name: name.clone() }) } else { Ok(()) }
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
    fn what_tells_a_browser_how_to_treat_a_page_is_recorded() {
        for name in [
            "x-content-type-options",
            "content-security-policy",
            "content-security-policy-report-only",
            "x-frame-options",
            "strict-transport-security",
            "referrer-policy",
            "permissions-policy",
            "cross-origin-opener-policy",
            "cross-origin-embedder-policy",
            "cross-origin-resource-policy",
            "access-control-allow-origin",
            "access-control-allow-credentials",
            "access-control-expose-headers",
            "vary",
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), "a".parse().unwrap())]);
            assert_eq!(Recorded::default().of(&headers).count(), 1, "{name}");
        }
    }

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
        let mut own = Recorded::default();
        own.add(HeaderName::from_static("x-own"));
        own.check().unwrap();
        assert_eq!(names(&Recorded::default()).len(), 3);
        assert_eq!(names(&own).len(), 4);
        let links: Vec<_> = names(&own).into_iter().filter(|line| line.starts_with("link")).collect();
        assert_eq!(links, ["link: <b>", "link: <a>"]);
        for name in HOP_BY_HOP.into_iter().chain(OF_ONE_CALLER).chain(OF_ONE_MESSAGE) {
            assert!(Recorded(vec![name.clone()]).check().is_err(), "{name}");
            assert!(!RECORDED.contains(&name), "{name}");
        }
    }
}
