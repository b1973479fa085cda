//! The signs by which a request shows that it comes from one of several callers.

use std::borrow::Cow;

use ::http::header::HeaderName;

use crate::http::request::credentials::Credential;

/// The headers by which proxies, sidecars and gateways say for whom they forward a request, in lower
/// case; a `*` at the end stands for any rest of the name.
///
/// A request with one of them was not sent by a program on this machine alone.
pub const PROXY_HEADERS: [&str; 42] = [
    // Of the standard, and the usual ones beside it.
    "forwarded*",
    "via",
    "x-forwarded*",
    "x-original-*",
    "x-real-ip",
    "true-client-ip",
    "client-ip",
    "x-client-ip",
    "x-client-cert*",
    "x-cluster-client-ip",
    "x-proxyuser-ip",
    "x-originating-ip",
    "x-remote-*",
    "remote-addr",
    "remote-user",
    "ssl-client-*",
    "x-ssl-*",
    "x-tls-*",
    // Of content delivery networks.
    "cdn-loop",
    "cf-*",
    "x-amz-cf-*",
    "fastly-*",
    "akamai-*",
    "x-akamai-*",
    "incap-*",
    "x-sucuri-*",
    "x-varnish",
    "x-vercel-*",
    "x-nf-*",
    // Of clouds and their load balancers.
    "x-amzn-*",
    "x-cloud-trace-context",
    "x-goog-*",
    "x-appengine-*",
    "x-azure-*",
    "x-arr-*",
    "x-ms-client-principal*",
    "fly-*",
    // Of sidecars, ingresses and tunnels.
    "x-envoy-*",
    "l5d-*",
    "x-consumer-*",
    "x-kong-*",
    "tailscale-*",
];

/// The words that suggest, in the name of a header, that it names a caller.
const CALLERS: [&str; 5] = ["user", "tenant", "account", "customer", "principal"];

/// Returns `true` if a header is one of [`PROXY_HEADERS`]. An underscore in its name counts as a
/// hyphen.
pub fn is_of_proxy(name: &HeaderName) -> bool {
    is_listed(&hyphenated(name))
}

/// The name with hyphens for underscores: to many services both are the same header.
fn hyphenated(name: &HeaderName) -> Cow<'_, str> {
    match name.as_str() {
        name if name.contains('_') => Cow::Owned(name.replace('_', "-")),
        name => Cow::Borrowed(name),
    }
}

fn is_listed(name: &str) -> bool {
    PROXY_HEADERS.iter().any(|listed| match listed.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *listed,
    })
}

/// Returns `true` if a header suggests that the request comes from one of several callers: it is
/// one that proxies add, or its name suggests a credential or the name of a caller. An underscore
/// in its name counts as a hyphen.
///
/// Under [`Anonymous::ShareLocal`](crate::http::Anonymous::ShareLocal) a request with such a header
/// and without credentials is refused. The gateway refuses requests whose `Connection` field would
/// remove one of these headers.
pub fn suggests_others(name: &HeaderName) -> bool {
    let name = &*hyphenated(name);
    let names_caller = || {
        // Browsers and other clients send these by themselves.
        !["user-agent", "sec-fetch-user"].contains(&name) && CALLERS.iter().any(|word| name.contains(word))
    };
    is_listed(name) || Credential::is_likely(name) || names_caller()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_proxies_credentials_and_callers_suggest_others() {
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded",
            "x-forwarded-client-cert",
            "x-real-ip",
            "cf-connecting-ip",
            "cf-ray",
            "true-client-ip",
            "x-envoy-external-address",
            "x-amzn-trace-id",
            "x-amz-cf-id",
            "fly-client-ip",
            "x-original-uri",
            "l5d-client-id",
            "cookie",
            "x-session-id",
            "x-user-id",
            "x-tenant",
            "x_forwarded_for",
            "remote_addr",
            "x_user_id",
        ] {
            assert!(suggests_others(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn headers_that_clients_send_by_themselves_suggest_nobody() {
        for name in [
            "accept",
            "accept-encoding",
            "content-length",
            "content-type",
            "connection",
            "expect",
            "host",
            "idempotency-key",
            "origin",
            "priority",
            "referer",
            "sec-ch-ua",
            "sec-fetch-mode",
            "sec-fetch-user",
            "traceparent",
            "user-agent",
            "user_agent",
            "x-request-id",
            "x_request_id",
        ] {
            assert!(!suggests_others(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn listed_names_are_in_lower_case_and_none_is_listed_twice() {
        for (at, listed) in PROXY_HEADERS.iter().enumerate() {
            let name = listed.trim_end_matches('*');
            assert_eq!(name.parse::<HeaderName>().unwrap().as_str(), name);
            assert!(!PROXY_HEADERS[..at].contains(listed), "{listed}");
        }
    }
}
