//! Access control of the admin listener.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use http::{Request, Version};

use crate::config::Secret;

/// The host names under which the listener answers, and the token it requires.
///
/// The host is checked because a web page can make a browser send requests: a page whose name
/// resolves to this address could read the answers. A host that is an IP address cannot be made to
/// resolve to another.
pub(crate) struct Guard {
    pub(crate) hosts: Vec<String>,
    pub(crate) token: Option<Secret>,
}

impl Guard {
    /// Returns `true` if the request names a host of this listener, which received it on the
    /// address `own`.
    pub(super) fn knows_host<B>(&self, request: &Request<B>, own: IpAddr) -> bool {
        let mut fields = request.headers().get_all(HOST).iter();
        let field = match (fields.next(), fields.next()) {
            (None, _) => None,
            (Some(field), None) => Some(field.to_str().ok().and_then(|host| host.parse::<Authority>().ok())),
            (Some(_), Some(_)) => return false,
        };
        let host = match (request.uri().authority().cloned(), field) {
            (Some(named), _) => named,
            (None, Some(Some(host))) => host,
            (None, Some(None)) => return false,
            // Old probes send no host; every browser sends one.
            (None, None) => return request.version() < Version::HTTP_11,
        };
        let name = host.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        match name.parse::<IpAddr>() {
            Ok(address) => {
                address.is_loopback() || address.to_canonical() == own.to_canonical() || self.allows(&name)
            }
            Err(_) => name == "localhost" || name.ends_with(".localhost") || self.allows(&name),
        }
    }

    fn allows(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host == "*" || host == name)
    }

    /// Returns `true` if the request has the token, or none is required.
    pub(super) fn knows_bearer<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        let mut offered = request.headers().get_all(AUTHORIZATION).iter();
        let (Some(offered), None) = (offered.next(), offered.next()) else { return false };
        let offered = offered.as_bytes().split_at_checked(7);
        offered.is_some_and(|(scheme, offered)| scheme.eq_ignore_ascii_case(b"bearer ") && token.is(offered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(host: &str, hosts: &[&str]) -> bool {
        let request = Request::get("/").header(HOST, host).body(()).unwrap();
        let guard = Guard { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), token: None };
        guard.knows_host(&request, "10.0.0.7".parse().unwrap())
    }

    #[test]
    fn a_name_that_is_not_known_is_not_answered() {
        for good in [
            "localhost",
            "localhost:1",
            "LOCALHOST",
            "127.0.0.1:9180",
            "127.1.2.3",
            "[::1]:9180",
            "10.0.0.7:80",
        ] {
            assert!(knows(good, &[]), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.8",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "semel",
        ] {
            assert!(!knows(bad, &[]), "{bad}");
        }
        assert!(knows("Semel:9180", &["semel"]));
        assert!(knows("10.0.0.8", &["10.0.0.8"]));
        assert!(knows("anything", &["*"]));
        assert!(!knows("other", &["semel"]));
    }

    #[test]
    fn only_old_probes_have_no_host() {
        let guard = Guard { hosts: Vec::new(), token: None };
        let request = |version| Request::get("/").version(version).body(()).unwrap();
        let own = "10.0.0.7".parse().unwrap();
        assert!(guard.knows_host(&request(Version::HTTP_10), own));
        assert!(!guard.knows_host(&request(Version::HTTP_11), own));
    }
}
