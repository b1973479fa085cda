//! What the log says at the start and after a reload: the identification of callers, and the bounds
//! in force.

use semel::http::Anonymous;

use crate::config::{Config, RouteConfig, Scoping, Size, Span};

/// Logs for each route how callers are identified, and the treatment of callers without
/// credentials.
pub(super) fn tell_scopes(config: &Config) {
    for (route, settings) in routes(config) {
        let anonymous = config.anonymous(settings);
        let gets = match (&settings.scope, anonymous) {
            (Scoping::None, _) => "all callers are one",
            (Scoping::Header { .. } | Scoping::Jwt, _) => "refused",
            (_, Anonymous::Share) => "all of them are one caller",
            (Scoping::Credentials(_), Anonymous::ShareLocal) => {
                "one caller, unless the request shows a sign of other callers"
            }
            (_, _) => "refused",
        };
        tracing::info!(route, scope = %settings.scope, callers_without = gets, "callers are told apart");
        let by_default =
            anonymous == Anonymous::ShareLocal && matches!(settings.scope, Scoping::Credentials(_));
        if by_default {
            tracing::warn!(
                route,
                "callers without credentials are one caller, as the gateway listens on this host only: do not put a proxy in front \
                 of it like this. Say `--anonymous refuse` or `--anonymous share`"
            );
        }
    }
}

/// Logs every bound in force, and warns of an address that others can reach without a ceiling of
/// the store.
pub(super) fn tell_bounds(config: &Config) {
    let limits = config.limits;
    let none = || "none".to_owned();
    tracing::info!(
        max_connections = config.max_connections,
        max_attempts = limits.max_attempts,
        max_memory = %Size(config.max_memory),
        max_store = limits.max_store.map_or_else(none, |limit| limit.to_string()),
        max_unsettled_per_caller = limits.max_unsettled_per_caller.map_or_else(none, |limit| limit.to_string()),
        max_new_per_caller = limits.max_new_per_caller.map_or_else(none, |rate| rate.to_string()),
        header_timeout = %Span(config.header_timeout),
        body_timeout = %Span(config.body_timeout),
        websocket_timeout = %Span(config.websocket_timeout),
        drain = %Span(config.drain),
        "bounds of the gateway"
    );
    for (route, settings) in routes(config) {
        tracing::info!(
            route,
            max_body = %Size(settings.max_body),
            max_response = %Size(settings.policy.max_body_bytes()),
            upstream_timeout = %Span(settings.upstream_timeout),
            wait = %Span(settings.policy.wait()),
            lease = %Span(settings.policy.terms().lease()),
            retention = %Span(settings.policy.terms().retention()),
            "bounds of a route"
        );
    }
    if !config.routes.is_empty() && config.all.upstream.is_some() {
        tracing::info!(
            upstream_timeout = %Span(config.all.upstream_timeout),
            "bounds of requests that no route covers, to which keys do not apply"
        );
    }
    if limits.max_store.is_none() && !config.is_local() {
        tracing::warn!(
            "the gateway listens on {}, which others may reach, and nothing limits the size of the store: any caller can make it grow \
             until the disk or the database is full. Set --max-store, such as 10GiB or 5000000records",
            config.listen
        );
    }
}

/// The routes with their paths; without routes, the settings of all requests.
fn routes(config: &Config) -> Vec<(String, &RouteConfig)> {
    match &*config.routes {
        [] => vec![("all".to_owned(), &config.all)],
        routes => routes.iter().map(|(path, settings)| (path.to_string(), settings)).collect(),
    }
}
