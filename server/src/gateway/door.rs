//! What is refused at the door, before any route is looked at.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, Version};

use super::body::Returned;
use super::headers::{belongs_to_the_connection, tokens};
use super::problem::Problem;

/// Refuses what cannot be passed on as the one thing that it says.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Box<Response<Returned>>> {
    let malformed = |detail: &str| Err(Box::new(Problem::MALFORMED.last(detail)));
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Box::new(Problem::METHOD.last(request.method().as_str())));
    }
    if !request.uri().path().starts_with('/') {
        return malformed("the path does not begin with a slash");
    }
    if !has_one_host(request) {
        return malformed("there is not exactly one host that it is for");
    }
    if let Some(name) = named_by_connection(request.headers()) {
        return malformed(&format!("Connection names {name}, which is for the service"));
    }
    Ok(())
}

/// Whether the request says for which host it is, once.
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
            // In HTTP/1.1 the target wins over the field; in HTTP/2 they have to agree.
            host.is_some_and(|host| {
                request.version() < Version::HTTP_2 || authority.is_none_or(|named| *named == host)
            })
        }
        (None, _) => authority.is_some() || request.version() < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

/// A field that Connection names although it is for the service: stripped, it would change what the service is asked.
fn named_by_connection(headers: &HeaderMap) -> Option<String> {
    let mut named = headers.get_all(CONNECTION).iter().flat_map(tokens);
    let refused = named.find(|name| {
        let names_the_key = name.eq_ignore_ascii_case("idempotency-key");
        !belongs_to_the_connection(name) && (names_the_key || headers.contains_key(*name))
    });
    refused.map(str::to_owned)
}

/// Whether the request asks for another protocol: one that we know how to pass on, or any.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<Upgrade> {
    let asked = headers.get(UPGRADE)?;
    let named =
        headers.get_all(CONNECTION).iter().flat_map(tokens).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let is_websocket =
        asked.as_bytes().eq_ignore_ascii_case(b"websocket") && headers.get_all(UPGRADE).iter().count() == 1;
    named.then_some(if is_websocket { Upgrade::WebSocket } else { Upgrade::Other })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrade {
    WebSocket,
    /// Not offered: the request is answered as if it had not asked.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(method: &str, uri: &str, fields: &[(&'static str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri(uri).version(Version::HTTP_11);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap()).is_ok()
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
    fn connection_names_only_what_belongs_to_it() {
        for good in ["close", "keep-alive, Upgrade", "x-absent", "te, close"] {
            assert!(passes("POST", "/", &[("host", "a"), ("connection", good)]), "{good}");
        }
        for bad in ["idempotency-key", "close, Idempotency-Key", "authorization", "host", "content-type"] {
            let fields = [("host", "a"), ("authorization", "b"), ("content-type", "c"), ("connection", bad)];
            assert!(!passes("POST", "/", &fields), "{bad}");
        }
    }

    #[test]
    fn some_methods_are_not_for_a_gateway() {
        assert!(!passes("TRACE", "/", &[("host", "a")]));
        assert!(!passes("CONNECT", "a:80", &[("host", "a")]));
        assert!(!passes("OPTIONS", "*", &[("host", "a")]));
    }
}
