//! The headers that are passed on, and those that belong to one connection only.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, Response, Uri, Version};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use semel::Lease;
use semel::http::{HOP_BY_HOP, Settle};

use crate::config::{Config, Underscores, guarded};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const SETTLE: HeaderName = HeaderName::from_static("idempotency-settle");

/// The headers that describe the attempt to the upstream.
const KEY: HeaderName = HeaderName::from_static("semel-key");
const TOKEN: HeaderName = HeaderName::from_static("semel-token");
const FENCE: HeaderName = HeaderName::from_static("semel-fence");
const ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");
const REALM: HeaderName = HeaderName::from_static("semel-realm");
const PRINCIPAL: HeaderName = HeaderName::from_static("semel-principal");

/// The characters that are encoded: those not allowed in a header, and the percent sign.
const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b'%');

/// The headers that belong to a connection.
fn of_the_connection() -> impl Iterator<Item = HeaderName> {
    HOP_BY_HOP.into_iter().chain([HTTP2_SETTINGS])
}

/// The tokens of a list.
pub(in crate::gateway) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|token| !token.is_empty())
}

/// Returns `true` if Connection may name this field.
pub(in crate::gateway) fn belongs_to_the_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("close")
        || of_the_connection().any(|own| name.eq_ignore_ascii_case(own.as_str()))
}

/// Removes the fields that belong to a connection, those that Connection names, and others.
fn strip(headers: &mut HeaderMap, is_other: impl Fn(&HeaderName) -> bool) {
    let named = headers.get_all(CONNECTION).iter().flat_map(tokens).filter_map(|name| name.parse().ok());
    let mut out: Vec<HeaderName> = named.collect();
    // Of many names, few are in a head: looking at its names is cheaper than looking each of them up.
    let is_out = |name: &&HeaderName| HOP_BY_HOP.contains(name) || **name == HTTP2_SETTINGS || is_other(name);
    out.extend(headers.keys().filter(is_out).cloned());
    for name in out {
        headers.remove(name);
    }
}

/// Joins cookies in one field: HTTP/2 may send them one by one, HTTP/1.1 has one field.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let values: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&values.join(b"; ".as_slice()));
    headers.insert(COOKIE, joined.expect("valid values make a valid one"));
}

/// The fields of clients that are not for the service. They are removed behind the layer, which
/// still has to see them: any of them can show that the request comes from one of several callers.
pub(in crate::gateway) struct Unwanted {
    underscores: Underscores,
    scope_headers: Vec<HeaderName>,
}

impl Unwanted {
    pub(in crate::gateway) fn of(config: &Config) -> Self {
        Self { underscores: config.underscores, scope_headers: config.scope_headers.clone() }
    }

    /// Returns `true` for a field that only the gateway may set, and for one that a service could
    /// mistake for another field: many services treat an underscore as a hyphen.
    fn has(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        name.starts_with("semel-")
            || name.contains('_')
                && (self.underscores == Underscores::Drop
                    || guarded::is_guarded(&name.replace('_', "-"), &self.scope_headers))
    }
}

/// Turns the headers of a client into those of the request to the upstream.
pub(in crate::gateway) fn for_upstream(
    headers: &mut HeaderMap,
    unwanted: &Unwanted,
    uri: &Uri,
    from: Option<IpAddr>,
    is_tls: bool,
) {
    let takes_trailers =
        headers.get_all(TE).iter().flat_map(tokens).any(|token| token.eq_ignore_ascii_case("trailers"));
    // The length is that of the new body, and the body has been requested already. Trailers of a
    // request are dropped: fields that they add to the head were not there when the key was
    // claimed.
    let of_the_body = [CONTENT_LENGTH, EXPECT, TRAILER];
    strip(headers, |name| of_the_body.contains(name) || unwanted.has(name));
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    join_cookies(headers);
    if let Some(host) = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        headers.insert(HOST, host);
    }
    if let Some(from) = from {
        // All addresses are joined in one line, because many services read the first line only.
        let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let mut all = String::new();
        before.for_each(|before| all.extend([before, ", "]));
        all.push_str(&from.to_string());
        headers.insert(FORWARDED_FOR, text(&all));
    }
    let proto = HeaderValue::from_static(if is_tls { "https" } else { "http" });
    headers.entry(FORWARDED_PROTO).or_insert(proto);
}

/// Adds the headers of the attempt, with which the upstream can complete the key itself or refuse a
/// stale attempt. A scope that is not plain text is percent-encoded. The key needs no encoding; it
/// is the key of the record, without the quotation marks that the client's header may have.
pub(in crate::gateway) fn tell(headers: &mut HeaderMap, lease: &Lease) {
    let scope = lease.key().scope();
    let key = HeaderValue::from_str(lease.key().value()).expect("printable ASCII is a valid value");
    headers.insert(KEY, key);
    headers.insert(TOKEN, text(&lease.token().to_string()));
    headers.insert(FENCE, HeaderValue::from(lease.fence().get()));
    headers.insert(ATTEMPT, HeaderValue::from(lease.attempt()));
    headers.insert(REALM, text(scope.realm()));
    headers.insert(PRINCIPAL, text(scope.principal()));
}

fn text(text: &str) -> HeaderValue {
    let encoded = utf8_percent_encode(text, UNPRINTABLE).to_string();
    HeaderValue::from_maybe_shared(Bytes::from(encoded)).expect("printable ASCII is a valid value")
}

/// Returns `true` if an answer is the last one of its connection.
pub(in crate::gateway) fn is_last<B>(response: &Response<B>) -> bool {
    let mut named = response.headers().get_all(CONNECTION).iter().flat_map(tokens);
    response.version() < Version::HTTP_11 || named.any(|name| name.eq_ignore_ascii_case("close"))
}

/// Returns `true` if the upstream frames its answer by anything but one length or chunks. hyper
/// would remove the chunks of `gzip, chunked` and leave the rest as the body, and it would hide a
/// length beside chunks.
pub(in crate::gateway) fn is_misframed(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => false,
        (Some(one), None) => {
            !one.as_bytes().eq_ignore_ascii_case(b"chunked") || headers.contains_key(CONTENT_LENGTH)
        }
        (Some(_), Some(_)) => true,
    }
}

/// Turns the headers of the upstream into those of the answer, and returns how it settles the key.
pub(in crate::gateway) fn for_client(headers: &mut HeaderMap) -> Option<Settle> {
    let said: Vec<Vec<u8>> =
        headers.get_all(SETTLE).iter().map(|word| word.as_bytes().to_ascii_lowercase()).collect();
    strip(headers, |name| *name == SETTLE);
    let (word, others) = said.split_first()?;
    if others.iter().any(|other| other != word) {
        return Some(Settle::Abandon("the upstream contradicted itself".to_owned()));
    }
    match word.as_slice() {
        b"complete" => Some(Settle::Complete),
        b"release" => Some(Settle::Release),
        b"abandon" => Some(Settle::Abandon("the upstream said that it does not know".to_owned())),
        _ => {
            tracing::warn!(
                "the upstream answered with an Idempotency-Settle other than complete, release and abandon"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn unwanted(settings: &str) -> Unwanted {
        let settings = format!("upstream = 'http://a'\n{settings}");
        Unwanted::of(&Config::new(toml::from_str(&settings).unwrap()).unwrap())
    }

    #[test]
    fn what_is_between_neighbours_stays_there() {
        let mut sent = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "5"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("content-length", "9"),
            ("expect", "100-continue"),
            ("proxy-authorization", "secret"),
            ("idempotency-key", "k"),
            ("x-forwarded-for", "10.0.0.1"),
        ]);
        for_upstream(&mut sent, &unwanted(""), &Uri::from_static("/"), Some([127, 0, 0, 1].into()), true);
        let left: Vec<_> =
            sent.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(
            left,
            [
                ("idempotency-key", "k"),
                ("x-forwarded-for", "10.0.0.1, 127.0.0.1"),
                ("x-forwarded-proto", "https"),
            ]
        );
    }

    #[test]
    fn what_only_the_gateway_says_and_what_has_an_underscore_is_taken_off() {
        let sent = headers(&[
            ("host", "a"),
            ("semel-key", "forged"),
            ("semel-anything", "forged"),
            ("semel_fence", "9"),
            ("idempotency_key", "k"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x_real_ip", "10.0.0.1"),
            ("x_mine", "1"),
            ("x-user", "1"),
            ("x_user", "2"),
        ]);
        let left = |settings: &str| {
            let mut left = sent.clone();
            for_upstream(&mut left, &unwanted(settings), &Uri::from_static("/"), None, false);
            left.keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(""), ["host", "x-user", "x-forwarded-proto"]);
        let allowed = "underscores = 'allow'\nscope = 'header:X-User'";
        assert_eq!(left(allowed), ["host", "x_mine", "x-user", "x-forwarded-proto"]);
    }

    #[test]
    fn the_word_of_the_upstream_is_not_passed_on() {
        let settled_by = |word: &'static str| {
            let mut answered = headers(&[("x-a", "1")]);
            answered.insert(SETTLE, HeaderValue::from_static(word));
            let settle = for_client(&mut answered);
            assert_eq!(answered.len(), 1);
            settle
        };
        assert_eq!(settled_by("complete"), Some(Settle::Complete));
        assert_eq!(settled_by("Release"), Some(Settle::Release));
        assert!(matches!(settled_by("abandon"), Some(Settle::Abandon(_))));
        assert_eq!(settled_by("maybe"), None);
    }
}
