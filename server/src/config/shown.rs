//! The configuration for people, without its secrets.

use http::{HeaderName, Method};
use semel::AfterCrash;
use serde_json::{Value, json};

use super::{Config, RouteConfig, Size, Span, Spelling};
use crate::stores;

impl Config {
    /// The settings in force, by name. Logins in URLs are left out.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.all.shown();
        let own = json!({
            "listen": self.listen,
            "admin": self.admin.map_or_else(|| "off".to_owned(), |admin| admin.to_string()),
            "admin-host": self.admin_hosts,
            "admin-token-file": self.admin_token.as_ref().map(|_| "set"),
            "uncovered": self.uncovered,
            "underscores": self.underscores,
            "store": stores::redacted(self.place.store_url()),
            "cache": self.place.cache.as_deref().map(stores::redacted),
            "realm": self.realm,
            "header-timeout": Span(self.header_timeout),
            "body-timeout": Span(self.body_timeout),
            "max-connections": self.max_connections,
            "max-attempts": self.limits.max_attempts,
            "max-store": self.limits.max_store,
            "max-unsettled-per-caller": self.limits.max_unsettled_per_caller,
            "max-new-per-caller": self.limits.max_new_per_caller,
            "max-memory": Size(self.max_memory),
            "websocket-timeout": Span(self.websocket_timeout),
            "tls-cert": self.tls.as_ref().map(|tls| &tls.cert),
            "tls-key": self.tls.as_ref().map(|tls| &tls.key),
            "upstream-ca": self.upstream_ca,
            "drain": Span(self.drain),
            "migrate": self.migrate,
            "cache-first": self.cache_first,
            "prune": self.prune,
            "principal-secret-file": self.principal_secrets.file(),
            "log-format": self.log_format,
            "route": self.routes.iter().map(|(path, route)| {
                let mut shown = route.shown();
                shown["path"] = json!(path.to_string());
                shown
            }).collect::<Vec<_>>(),
        });
        if let (Value::Object(shown), Value::Object(own)) = (&mut shown, own) {
            shown.extend(own);
        }
        shown
    }
}

impl RouteConfig {
    fn shown(&self) -> Value {
        json!({
            "upstream": self.upstream.as_ref().map(ToString::to_string),
            "upstream-timeout": Span(self.upstream_timeout),
            "policy": match self.policy.after_crash() {
                AfterCrash::Retry => "retry",
                AfterCrash::Transactional => "transactional",
                _ => "hold",
            },
            "lease": Span(self.policy.terms().lease()),
            "retention": Span(self.policy.terms().retention()),
            "wait": Span(self.policy.wait()),
            "methods": self.methods.iter().map(Method::as_str).collect::<Vec<_>>(),
            "require-key": self.require_key,
            "scope": self.scope,
            "record-header": self.record_headers.iter().map(HeaderName::as_str).collect::<Vec<_>>(),
            "trailing-slash": spelling(self.spellings.ignore_slash),
            "case": spelling(self.spellings.ignore_case),
            "anonymous": self.anonymous,
            "jwks": self.jwt.as_ref().map(|jwt| jwt.keys.to_string()),
            "issuer": self.jwt.as_ref().map(|jwt| &jwt.issuer),
            "audience": self.jwt.as_ref().map(|jwt| &jwt.audience),
            "claim": self.jwt.as_ref().map(|jwt| &jwt.claim),
            "max-body": Size(self.max_body),
            "max-response": Size(self.policy.max_body_bytes()),
        })
    }
}

fn spelling(ignored: bool) -> Spelling {
    if ignored { Spelling::Ignore } else { Spelling::Exact }
}
