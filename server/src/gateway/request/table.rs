//! The routing table: the destination and the terms of each request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use semel::Scope;
use semel::http::{Anonymous, IDEMPOTENCY_KEY, Idempotency, IdempotencyLayer};
use serde_json::{Value, json};
use tower_layer::Layer;

use crate::config::{Config, JwtConfig, Pattern, RouteConfig, Scoping, Spellings};
use crate::gateway::request::caller::{self, Callers};
use crate::gateway::request::jwt::{KeySource, Verifier};
use crate::gateway::request::passing::Passing;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::drip::LEAST_RATE;
use crate::gateway::upstream::headers::Unwanted;
use crate::gateway::upstream::{Client, Upstream};

/// The routes, and the default for all other requests.
pub(in crate::gateway) struct Table {
    routes: Vec<(Pattern, Spellings, Target)>,
    rest: Option<Target>,
    /// The published description for clients, as JSON.
    published: Bytes,
}

/// The destination of a request.
#[derive(Clone)]
pub(in crate::gateway) enum Target {
    /// A target on which keys apply.
    Covered(Box<Covered>),
    /// A target that gets every request unchanged.
    Open(Upstream),
}

/// A service on which keys apply to these methods.
#[derive(Clone)]
pub(in crate::gateway) struct Covered {
    pub(in crate::gateway) service: Idempotency<Upstream>,
    pub(in crate::gateway) upstream: Upstream,
    pub(in crate::gateway) methods: Vec<Method>,
    pub(in crate::gateway) callers: Callers,
}

impl Table {
    /// The table of a configuration.
    ///
    /// # Errors
    /// If the realm breaks a limit.
    pub(in crate::gateway) fn new(
        config: &Config,
        layer: &IdempotencyLayer,
        keys: &dyn Fn(&JwtConfig) -> Arc<KeySource>,
        client: &Client,
        passing: &Passing,
    ) -> anyhow::Result<Self> {
        let cover = |pattern: &Pattern, route: &RouteConfig| -> anyhow::Result<Option<(Target, Value)>> {
            let Some(origin) = route.upstream.clone() else { return Ok(None) };
            let (client, unwanted) = (client.clone(), Unwanted::of(config));
            let upstream = Upstream::new(client, origin, route.upstream_timeout, unwanted, passing.clone());
            let layer = layer_of(config, pattern, route, layer)?;
            let mut published = layer.published();
            let service = layer.layer(upstream.clone());
            let callers = callers_of(config, route, keys)?;
            if let Some(problems) = published["problems"].as_array_mut() {
                problems.extend(Problem::PUBLISHED.map(Problem::published));
                if matches!(callers, Callers::Token(_)) {
                    problems.extend(Problem::OF_TOKENS.map(Problem::published));
                }
            }
            let covered = Covered { service, upstream, methods: route.methods.clone(), callers };
            Ok(Some((Target::Covered(Box::new(covered)), published)))
        };
        let (mut routes, mut published) = (Vec::new(), Vec::new());
        for (pattern, route) in &config.routes {
            if let Some((target, mut shown)) = cover(pattern, route)? {
                shown["path"] = json!(pattern.to_string());
                published.push(shown);
                routes.push((pattern.clone(), route.spellings, target));
            }
        }
        let (rest, published) = match cover(&Pattern::all(), &config.all)? {
            // Without routes, everything is covered.
            Some((target, shown)) if routes.is_empty() => (Some(target), shown),
            Some((Target::Covered(covered), _)) => {
                (Some(Target::Open(covered.upstream)), json!({ "routes": published }))
            }
            _ => (None, json!({ "routes": published })),
        };
        Ok(Self { routes, rest, published: Bytes::from(published.to_string()) })
    }

    /// The target of this path: the first route that covers it.
    pub(in crate::gateway) fn target(&self, path: &str) -> Option<&Target> {
        let covering = self.routes.iter().find(|(pattern, spellings, _)| pattern.covers(path, *spellings));
        covering.map(|(_, _, target)| target).or(self.rest.as_ref())
    }

    /// The published description for clients.
    pub(in crate::gateway) fn published(&self) -> Bytes {
        self.published.clone()
    }
}

impl Target {
    pub(in crate::gateway) fn upstream(&self) -> &Upstream {
        match self {
            Self::Covered(covered) => &covered.upstream,
            Self::Open(upstream) => upstream,
        }
    }
}

/// Returns `true` if a request is read to its end before it is passed on.
pub(in crate::gateway) fn reads<B>(target: &Target, request: &Request<B>) -> bool {
    let Target::Covered(covered) = target else { return false };
    covered.methods.contains(request.method()) && request.headers().contains_key(&IDEMPOTENCY_KEY)
}

/// The reason why the key of a request would not apply, although its client relies on it.
pub(in crate::gateway) fn uncovered<B>(target: &Target, request: &Request<B>) -> Option<&'static str> {
    let counts_anywhere = IdempotencyLayer::DEFAULT_METHODS.contains(request.method());
    if !counts_anywhere || !request.headers().contains_key(&IDEMPOTENCY_KEY) {
        return None;
    }
    match target {
        Target::Covered(covered) if covered.methods.contains(request.method()) => None,
        Target::Covered(_) => Some("The route of this path counts keys on other methods only"),
        Target::Open(_) => Some("No route covers this path"),
    }
}

/// The layer with the terms of a route.
fn layer_of(
    config: &Config,
    pattern: &Pattern,
    route: &RouteConfig,
    layer: &IdempotencyLayer,
) -> anyhow::Result<IdempotencyLayer> {
    let layer = layer
        .clone()
        .with_realm(&config.realm)
        .try_with_policy(route.policy.clone())?
        .with_methods(route.methods.clone())
        .with_required_key(route.require_key)
        .with_max_request_bytes(route.max_body)
        .with_request_timeout(config.body_timeout)
        .with_least_rate(LEAST_RATE)
        // The limit exceeds the upstream's silence limit, so that a silent upstream counts as
        // broken.
        .with_whole_responses(route.upstream_timeout + Duration::from_secs(1));
    let layer =
        route.record_headers.iter().fold(layer, |layer, name| layer.with_recorded_header(name.clone()));
    layer.check()?;
    let (pattern, spellings) = (pattern.clone(), route.spellings);
    let layer = match spellings.all_count() {
        true => layer,
        false => layer.with_path(move |path| Some(pattern.spell(path, spellings))),
    };
    Ok(match (route.scope.credentials(), &route.scope) {
        (Some(named), scope) => {
            let anonymous = match (scope, config.anonymous(route)) {
                // A proxy in front of the gateway sets the header, so a request without it has
                // bypassed the proxy.
                (Scoping::Header { .. }, _) => Anonymous::Refuse,
                (_, anonymous) => anonymous,
            };
            layer.with_credentials(named).with_anonymous_callers(anonymous)
        }
        (None, Scoping::None) => {
            let realm = Scope::new(&config.realm)?;
            layer.with_scope(move |_| Some(realm.clone()))
        }
        (None, _) => layer.with_scope(caller::found),
    })
}

/// The identification of a route's callers.
fn callers_of(
    config: &Config,
    route: &RouteConfig,
    keys: &dyn Fn(&JwtConfig) -> Arc<KeySource>,
) -> anyhow::Result<Callers> {
    let realm = Scope::new(&config.realm)?;
    Ok(match (&route.scope, &route.jwt) {
        (Scoping::Header { name, is_secret: false }, _) => Callers::Header { name: name.clone(), realm },
        (Scoping::Jwt, Some(jwt)) => Callers::Token(Arc::new(Verifier::new(jwt.clone(), realm, keys(jwt)))),
        _ => Callers::OfLayer,
    })
}
