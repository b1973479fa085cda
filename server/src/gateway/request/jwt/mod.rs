//! Callers with a bearer token that the gateway verifies itself.
//!
//! The usable keys of the issuer are used with the algorithm of their type, never with one that the
//! token chooses. The principal is made of the issuer and the claim that identifies the caller, so
//! a refreshed token belongs to the same caller.
//!
//! - [`source`]: the issuer's keys, from a file or a URL, and the limits of their age.
//! - [`keys`]: the usable keys, and the choice among them for a token.
//! - [`signatures`]: the verification of signatures by ring.

mod keys;
mod signatures;
mod source;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use semel::Scope;
use serde_json::{Map, Value};

use self::keys::Keys;
pub(in crate::gateway) use self::source::{KeySource, KeySources, check_file};
use crate::config::JwtConfig;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::body::Returned;

/// The longest token that is read.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// The largest difference allowed between the clocks of the issuer and of this host.
const LEEWAY_SECONDS: u64 = 30;

/// Identifies the caller by the token of a request.
pub(in crate::gateway) struct Verifier {
    config: JwtConfig,
    realm: Scope,
    keys: Arc<KeySource>,
}

/// The reason why a request with a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Refused {
    /// The request has no token.
    Missing,
    /// The token is invalid.
    Invalid(&'static str),
    /// The keys of the issuer are unavailable.
    NoKeys,
}

impl Verifier {
    pub(in crate::gateway) fn new(config: JwtConfig, realm: Scope, keys: Arc<KeySource>) -> Self {
        signatures::install();
        Self { config, realm, keys }
    }

    /// The scope of the caller to whom the token belongs.
    pub(in crate::gateway) async fn scope(&self, headers: &HeaderMap) -> Result<Scope, Refused> {
        let token = bearer(headers)?;
        let head = Head::of(token)?;
        let keys = self.keys.get().await?;
        let claims = match self.verify(token, &head, &keys) {
            Err(Unverified::UnknownKey) => {
                // The issuer may have published new keys in the meantime.
                let keys = self.keys.newer_than(&keys).await?.ok_or(UNKNOWN_KEY)?;
                self.verify(token, &head, &keys)
            }
            verified => verified,
        };
        let claims = claims.map_err(|unverified| match unverified {
            Unverified::UnknownKey => UNKNOWN_KEY,
            Unverified::Invalid(why) => Refused::Invalid(why),
        })?;
        self.scope_of(&claims)
    }

    fn verify(&self, token: &str, head: &Head, keys: &Keys) -> Result<Map<String, Value>, Unverified> {
        let mut validation = Validation::new(head.algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[&self.config.audience]);
        let mut last = Unverified::UnknownKey;
        for key in keys.matching(head.algorithm, head.key_id.as_deref()) {
            match jsonwebtoken::decode::<Map<String, Value>>(token, key, &validation) {
                Ok(verified) => return Ok(verified.claims),
                // A token without a key id may be signed with any of the keys.
                Err(error) => last = Unverified::Invalid(why(error.kind())),
            }
        }
        Err(last)
    }

    fn scope_of(&self, claims: &Map<String, Value>) -> Result<Scope, Refused> {
        let JwtConfig { issuer, claim, .. } = &self.config;
        // A list of issuers does not say which of them made these claims.
        if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
            return Err(Refused::Invalid("it is by another issuer"));
        }
        let value = claims.get(claim).and_then(Value::as_str).filter(|value| !value.is_empty());
        let value =
            value.ok_or(Refused::Invalid("it has no text in the claim that identifies the caller"))?;
        let principal = format!("{issuer} {claim} {value}");
        let scope = self.realm.clone().with_principal(&principal);
        // The principal is too long, or has control characters.
        let scope = scope.or_else(|_| self.realm.clone().with_principal(&signatures::digest(&principal)));
        scope.map_err(|_| Refused::Invalid("the claim that identifies the caller cannot be used"))
    }
}

const UNKNOWN_KEY: Refused = Refused::Invalid("it is signed with a key that the issuer does not publish");

enum Unverified {
    UnknownKey,
    Invalid(&'static str),
}

/// The only token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let mut sent = headers.get_all(AUTHORIZATION).iter();
    let sent = match (sent.next(), sent.next()) {
        (None, _) => return Err(Refused::Missing),
        (Some(sent), None) => sent.to_str().map_err(|_| Refused::Invalid("it is no text"))?,
        (Some(_), Some(_)) => return Err(Refused::Invalid("there is more than one Authorization header")),
    };
    match sent.trim().split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => match token.trim() {
            token if token.len() > MAX_TOKEN_BYTES => Err(Refused::Invalid("it is too long")),
            token => Ok(token),
        },
        _ => Err(Refused::Missing),
    }
}

/// The header of a token. It is not trusted: it only selects among the keys.
struct Head {
    algorithm: Algorithm,
    key_id: Option<String>,
}

impl Head {
    fn of(token: &str) -> Result<Self, Refused> {
        let no_token = Refused::Invalid("it is no JSON Web Token");
        let (head, _) = token.split_once('.').ok_or(no_token)?;
        let head = URL_SAFE_NO_PAD.decode(head).map_err(|_| no_token)?;
        let head: Map<String, Value> = serde_json::from_slice(&head).map_err(|_| no_token)?;
        let algorithm = match head.get("alg").and_then(Value::as_str) {
            Some("RS256") => Algorithm::RS256,
            Some("ES256") => Algorithm::ES256,
            Some("EdDSA") => Algorithm::EdDSA,
            _ => return Err(Refused::Invalid("its algorithm is none of RS256, ES256 and EdDSA")),
        };
        if head.contains_key("crit") {
            return Err(Refused::Invalid("it needs extensions that are not known here"));
        }
        let key_id = match head.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err(no_token),
        };
        Ok(Self { algorithm, key_id })
    }
}

fn why(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is by another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidSignature => "its signature does not hold",
        ErrorKind::MissingRequiredClaim(_) => "it lacks exp, iss or aud",
        _ => "it is no JSON Web Token of the issuer",
    }
}

impl Refused {
    pub(in crate::gateway) fn response(self) -> Response<Returned> {
        let (problem, detail, challenge) = match self {
            Self::Missing => (Problem::TOKEN_MISSING, None, Some("Bearer")),
            Self::Invalid(why) => (
                Problem::TOKEN_INVALID,
                Some(format!("The token is refused: {why}")),
                Some("Bearer error=\"invalid_token\""),
            ),
            Self::NoKeys => (Problem::KEYS_UNAVAILABLE, None, None),
        };
        let mut response = problem.response(detail.as_deref());
        match challenge {
            Some(challenge) => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            None => {
                response.headers_mut().insert(RETRY_AFTER, source::RELOAD_EVERY.as_secs().into());
            }
        }
        response
    }
}
