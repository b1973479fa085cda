//! The header fields on which the gateway relies.

use anyhow::{Result, ensure};
use http::HeaderName;
use semel::http::{IDEMPOTENCY_KEY, is_of_proxy};

use super::Underscores;

/// Returns `true` if the gateway relies on a field of this name: for the key, the caller, the
/// destination or the length of the request, or for its own messages to the service.
pub(crate) fn is_guarded(name: &str, scope_headers: &[HeaderName]) -> bool {
    const NAMES: [&str; 6] =
        ["authorization", "cookie", "x-api-key", "host", "content-length", "transfer-encoding"];
    let is_scope = || scope_headers.iter().any(|scope| scope.as_str() == name);
    // Without the header of a proxy, a request on loopback would look like one of a local caller.
    let of_proxy = || name.parse().is_ok_and(|name: HeaderName| is_of_proxy(&name));
    name == IDEMPOTENCY_KEY.as_str()
        || NAMES.contains(&name)
        || name.starts_with("semel-")
        || is_scope()
        || of_proxy()
}

/// Refuses scopes by a header that is removed from every request before the scope is read.
///
/// # Errors
/// If there is such a header; the message suggests a remedy.
pub(super) fn check_scopes(scope_headers: &[HeaderName], underscores: Underscores) -> Result<()> {
    for name in scope_headers.iter().map(HeaderName::as_str) {
        let hyphens = name.replace('_', "-");
        ensure!(
            !name.starts_with("semel-"),
            "scope: the header {name} is removed from requests: use another name"
        );
        if hyphens == name {
            continue;
        }
        ensure!(
            underscores == Underscores::Allow,
            "scope: the header {name} has an underscore, and such headers are removed from requests: name it {hyphens}, or set \
             `underscores = \"allow\"`"
        );
        ensure!(
            !is_guarded(&hyphens, scope_headers),
            "scope: the header {name} is removed from requests, because a service could take it for {hyphens}: use another name"
        );
    }
    Ok(())
}
