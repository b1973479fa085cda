//! The checks before a route is looked up.

use http::header::{CONNECTION, HOST, HeaderName, UPGRADE};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, Version};
use semel::http::suggests_others;

use crate::config::{Config, guarded};
use crate::gateway::accept::FIELDS;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::body::Returned;
use crate::gateway::upstream::headers::{belongs_to_the_connection, tokens};

/// Refuses requests that another server could read differently, and removes the fields that
/// Connection names.
pub(in crate::gateway) fn admit<B>(
    request: &mut Request<B>,
    config: &Config,
) -> Result<(), Box<Response<Returned>>> {
    if request.headers().len() > FIELDS {
        return Err(Box::new(Problem::TOO_MANY_FIELDS.response(None)));
    }
    check(request)?;
    let named: Vec<String> = named_by_connection(request.headers());
    if let Some(name) = named.iter().find(|name| is_counted_on(name, config) || is_sign_of_others(name)) {
        let detail =
            format!("The field Connection names {name}, without which this would be another request");
        return Err(Box::new(Problem::MALFORMED.last(&detail)));
    }
    for name in named {
        request.headers_mut().remove(name.as_str());
    }
    Ok(())
}

/// Refuses requests that another server could read differently.
fn check<B>(request: &Request<B>) -> Result<(), Box<Response<Returned>>> {
    let malformed = |detail: &str| Err(Box::new(Problem::MALFORMED.last(detail)));
    let method = request.method();
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Box::new(Problem::METHOD.last(method.as_str())));
    }
    if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        // Keys do not apply to it here, and many services take it for the method in capitals and
        // run it.
        let detail = format!(
            "The method {method} has lower-case letters, which are not those of {}: methods are written in capitals",
            method.as_str().to_ascii_uppercase()
        );
        return Err(Box::new(Problem::MALFORMED.response(Some(&detail))));
    }
    if !request.uri().path().starts_with('/') {
        return malformed("The path does not begin with a slash");
    }
    if !has_one_host(request) {
        return malformed("There is not exactly one host that it is for");
    }
    Ok(())
}

/// Returns `true` if the request names its host exactly once.
fn has_one_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let authority = request.uri().authority();
    if authority.is_some_and(|named| named.as_str().contains('@')) {
        return false;
    }
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = host.to_str().ok().filter(|host| !host.contains('@'));
            let host = host.and_then(|host| host.parse::<Authority>().ok());
            // In HTTP/1.1 the target takes precedence over the field; in HTTP/2 they have to agree.
            host.is_some_and(|host| {
                request.version() < Version::HTTP_2 || authority.is_none_or(|named| *named == host)
            })
        }
        (None, _) => authority.is_some() || request.version() < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

/// The fields that Connection names, in lower case, except those that always belong to a
/// connection.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let named = headers.get_all(CONNECTION).iter().flat_map(tokens);
    named
        .map(str::to_ascii_lowercase)
        .filter(|name| name == "transfer-encoding" || !belongs_to_the_connection(name))
        .collect()
}

/// Returns `true` if the gateway relies on a field of this name.
fn is_counted_on(name: &str, config: &Config) -> bool {
    guarded::is_guarded(name, &config.scope_headers)
}

/// Returns `true` if the field's name suggests a proxy, a credential or the name of a caller: without
/// the field, a request on loopback would look like one of a local caller.
fn is_sign_of_others(name: &str) -> bool {
    name.parse().is_ok_and(|name: HeaderName| suggests_others(&name))
}

/// The protocol that the request asks to upgrade to, if any.
pub(in crate::gateway) fn upgrade(headers: &HeaderMap) -> Option<Upgrade> {
    let asked = headers.get(UPGRADE)?;
    let named =
        headers.get_all(CONNECTION).iter().flat_map(tokens).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let is_websocket =
        asked.as_bytes().eq_ignore_ascii_case(b"websocket") && headers.get_all(UPGRADE).iter().count() == 1;
    named.then_some(if is_websocket { Upgrade::WebSocket } else { Upgrade::Other })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Upgrade {
    WebSocket,
    /// A protocol that is not offered: the request is answered without an upgrade.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that remain of an accepted request.
    fn left(method: &str, uri: &str, fields: &[(&'static str, &str)], settings: &str) -> Option<Vec<String>> {
        let settings = format!("upstream = 'http://a'\n{settings}");
        let config = Config::new(toml::from_str(&settings).unwrap()).unwrap();
        let mut request = Request::builder().method(method).uri(uri).version(Version::HTTP_11);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        admit(&mut request, &config).ok()?;
        Some(request.headers().keys().map(|name| name.as_str().to_owned()).collect())
    }

    fn passes(method: &str, uri: &str, fields: &[(&'static str, &str)]) -> bool {
        left(method, uri, fields, "").is_some()
    }

    #[test]
    fn a_request_is_for_one_host() {
        assert!(passes("GET", "/", &[("host", "a")]));
        assert!(passes("GET", "/", &[("host", "a:80")]));
        assert!(passes("GET", "/", &[("host", "[::1]:80")]));
        assert!(passes("GET", "http://b/", &[("host", "a")]));
        assert!(!passes("GET", "/", &[]));
        assert!(!passes("GET", "http://u@b/", &[("host", "b")]));
        for bad in ["", "a b", "a@b", "a/b"] {
            assert!(!passes("GET", "/", &[("host", bad)]), "{bad}");
        }
        assert!(!passes("GET", "/", &[("host", "a"), ("host", "a")]));
    }

    #[test]
    fn what_connection_names_is_taken_off_unless_the_gateway_counts_on_it() {
        let named = |name: &str, settings: &str| {
            let fields = [
                ("host", "a"),
                ("x-mine", "1"),
                ("user-agent", "1"),
                ("content-type", "c"),
                ("connection", name),
            ];
            left("POST", "/", &fields, settings)
        };
        for (good, taken) in [
            ("close", ""),
            ("keep-alive, Upgrade", ""),
            ("x-absent", ""),
            ("X-Mine, close", "x-mine"),
            ("user-agent", "user-agent"),
        ] {
            let left = named(good, "").expect(good);
            assert_eq!(left.len(), 5 - usize::from(!taken.is_empty()), "{good}");
            assert!(!left.iter().any(|name| name == taken), "{good}");
        }
        for bad in [
            "idempotency-key",
            "close, Idempotency-Key",
            "authorization",
            "cookie",
            "X-Api-Key",
            "host",
            "content-length",
            "Transfer-Encoding",
            "x-forwarded-for",
            "X-Forwarded-Anything",
            "forwarded",
            "via",
            "x-real-ip",
            "CF-Connecting-IP",
            "x-envoy-internal",
            "x-amzn-trace-id",
            "true-client-ip",
            "x-session-id",
            "X-Auth-Token",
            "x-user",
            "X-User-Id",
            "x-tenant",
            "X_Forwarded_For",
            "semel-fence",
        ] {
            assert_eq!(named(bad, ""), None, "{bad}");
        }
        assert_eq!(named("X-Shop", "scope = 'header:X-Shop'"), None);
        let route = "[[route]]\npath = '/a'\nscope = 'header:X-Shop'";
        assert_eq!(named("x-shop", route), None);
    }

    #[test]
    fn some_methods_are_not_for_a_gateway() {
        assert!(!passes("TRACE", "/", &[("host", "a")]));
        assert!(!passes("CONNECT", "a:80", &[("host", "a")]));
        assert!(!passes("OPTIONS", "*", &[("host", "a")]));
        for method in ["post", "Post", "patch", "dELETE", "m-search"] {
            assert!(!passes(method, "/", &[("host", "a")]), "{method}");
        }
        assert!(passes("M-SEARCH", "/", &[("host", "a")]));
    }
}
