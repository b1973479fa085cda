//! The scope of a key, from the request.

use std::fmt;
use std::sync::Arc;

use ::http::HeaderMap;
use ::http::header::COOKIE;
use ::http::request::Parts;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::reply::rejection::Rejection;
use crate::http::request::credentials::Credential;
use crate::http::request::others::suggests_others;
use crate::words::key::{KeyError, Scope};

/// The application's function from a request to the scope of its caller.
type Says = dyn Fn(&Parts) -> Option<Scope> + Send + Sync;

/// The application's function from a request to the principal of its caller.
type SaysPrincipal = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// The treatment of a request with a key that has none of the credentials that distinguish callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Anonymous {
    /// The request is refused (400 `idempotency_scope_missing`).
    #[default]
    Refuse,
    /// All such requests count as those of **one caller**: a caller that uses the key of another
    /// gets the recorded answer of the other. That is correct only where callers need not be
    /// distinguished, because there is only one, or because no answer is meant for one of them
    /// alone.
    Share,
    /// As `Share` for requests without a sign of other callers, otherwise as `Refuse`. Signs are
    /// the headers that proxies add ([`PROXY_HEADERS`](crate::http::PROXY_HEADERS)), any header
    /// whose name suggests a credential ([`Credential::is_likely_in`]), and any whose name has the
    /// word `user`, `tenant`, `account`, `customer` or `principal` (except `User-Agent` and
    /// `Sec-Fetch-User`). A proxy that adds none of them is not recognised: this is for development
    /// on one machine.
    ShareLocal,
}

/// The way in which the scope of a key is found. Each setting stands on its own, so they may be made
/// in any order.
#[derive(Clone)]
pub(in crate::http) struct Scoping {
    pub(in crate::http) realm: Result<Scope, KeyError>,
    pub(in crate::http) by: By,
    pub(in crate::http) names: Arc<[Credential]>,
    pub(in crate::http) anonymous: Anonymous,
}

/// The way in which callers are identified.
#[derive(Clone)]
pub(in crate::http) enum By {
    /// A keyed digest of the credentials, within the realm.
    Credentials,
    /// The name that the application gives it, within the realm.
    Principal(Arc<SaysPrincipal>),
    /// The scope that the application gives it.
    Application(Arc<Says>),
}

impl Default for Scoping {
    fn default() -> Self {
        let names = Credential::common().into();
        Self { realm: Scope::new("http"), by: By::Credentials, names, anonymous: Anonymous::Refuse }
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum Caller {
    /// The scope is known.
    Known(Scope),
    /// The caller in this realm with the credentials of the request. The digest needs a secret.
    With(Scope),
}

impl Scoping {
    /// The caller of this request.
    pub(in crate::http) fn caller(&self, parts: &Parts) -> Result<Caller, Rejection> {
        let Self { realm, by, names, anonymous } = self;
        let realm = || realm.clone().map_err(|_| Rejection::ScopeUnknown);
        match by {
            By::Credentials => {}
            By::Principal(says) => {
                // An empty principal is the whole realm: such callers would share their keys.
                let principal = says(parts).filter(|principal| !principal.is_empty());
                let principal = principal.ok_or(Rejection::ScopeUnknown)?;
                let scope = realm()?.with_principal(&principal).map_err(|_| Rejection::ScopeUnknown)?;
                return Ok(Caller::Known(scope));
            }
            By::Application(says) => return says(parts).map(Caller::Known).ok_or(Rejection::ScopeUnknown),
        }
        if names.iter().any(|name| name.is_in(&parts.headers)) {
            return Ok(Caller::With(realm()?));
        }
        let shares = match anonymous {
            Anonymous::Refuse => false,
            Anonymous::Share => true,
            Anonymous::ShareLocal => !parts.headers.keys().any(suggests_others),
        };
        if shares {
            return Ok(Caller::Known(realm()?));
        }
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(Rejection::ScopeMissing { expected: names, has_cookies: parts.headers.contains_key(COOKIE) })
    }

    /// The scope of the caller with these credentials.
    pub(in crate::http) fn with_credentials(&self, realm: Scope, secret: &Digest, parts: &Parts) -> Scope {
        let principal = secret.of(&self.names, &parts.headers);
        realm.with_principal(&principal).expect("hexadecimal digits are a valid principal")
    }
}

impl fmt::Debug for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { realm, by, names, anonymous } = self;
        match by {
            By::Application(_) => f.write_str("Application"),
            By::Principal(_) => f.debug_struct("Principal").field("realm", realm).finish(),
            By::Credentials => f
                .debug_struct("Credentials")
                .field("realm", realm)
                .field("names", names)
                .field("anonymous", anonymous)
                .finish(),
        }
    }
}

/// The derivation of principals from credentials by HMAC-SHA256: without its key, guesses at a
/// short credential cannot be checked.
#[derive(Clone)]
pub(in crate::http) struct Digest(Hmac<Sha256>);

impl Digest {
    pub(in crate::http) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key of any length is valid"))
    }

    /// The digest of the credentials of a request, each with its name, as hexadecimal digits.
    fn of(&self, names: &[Credential], headers: &HeaderMap) -> String {
        let mut mac = self.0.clone();
        let mut frame = |part: &[u8]| {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        };
        frame(b"credentials 2");
        for name in names {
            let values = name.values(headers);
            if values.is_empty() {
                continue;
            }
            let (kind, label) = name.label();
            // HTTP/2 may send the cookies one by one; they are the same cookies.
            let separator = if label == COOKIE.as_str().as_bytes() { b"; ".as_slice() } else { b", " };
            frame(kind);
            frame(label);
            frame(&values.join(separator));
        }
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use ::http::Request;
    use ::http::header::AUTHORIZATION;

    use super::*;

    fn scoping(names: &[Credential], anonymous: Anonymous) -> Scoping {
        Scoping { realm: Scope::new("shop"), by: By::Credentials, names: Arc::from(names), anonymous }
    }

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request.into_parts().0
    }

    fn scope_by(secret: &[u8], names: &[Credential], headers: &[(&'static str, &str)]) -> Scope {
        let (scoping, parts) = (scoping(names, Anonymous::Refuse), parts(headers));
        match scoping.caller(&parts).expect("a caller") {
            Caller::Known(scope) => scope,
            Caller::With(realm) => scoping.with_credentials(realm, &Digest::new(secret), &parts),
        }
    }

    fn scope_of(headers: &[(&'static str, &str)]) -> Scope {
        scope_by(b"secret", &[AUTHORIZATION.into(), COOKIE.into()], headers)
    }

    #[test]
    fn credentials_keep_callers_apart() {
        let ann = scope_of(&[("authorization", "Bearer ann")]);
        assert_eq!(ann, scope_of(&[("authorization", "Bearer ann")]));
        assert_ne!(ann, scope_of(&[("authorization", "Bearer bob")]));
        assert_ne!(ann, scope_of(&[("cookie", "Bearer ann")]));
        assert_ne!(ann, scope_of(&[("authorization", "Bearer ann"), ("cookie", "a=1")]));
        let (two, one) = ([("cookie", "a=1"), ("cookie", "b=2")], [("cookie", "a=1; b=2")]);
        assert_eq!(scope_of(&two), scope_of(&one));
        assert_ne!(scope_of(&two), scope_of(&[("cookie", "a=1b=2")]));
    }

    #[test]
    fn a_scope_cannot_be_made_without_the_secret() {
        let ann = [("authorization", "Bearer ann")];
        let by = |secret: &[u8]| scope_by(secret, &Credential::common(), &ann);
        assert_eq!(by(b"a"), by(b"a"));
        assert_ne!(by(b"a"), by(b"b"));
        let scope = by(b"a");
        assert_eq!((scope.realm(), scope.principal().len()), ("shop", 64));
        assert!(!scope.principal().contains("ann"));
    }

    #[test]
    fn one_cookie_counts_and_the_others_may_change() {
        let by = |cookies| scope_by(b"s", &[Credential::cookie("sid")], &[("cookie", cookies)]);
        assert_eq!(by("sid=ann; _ga=1"), by("_ga=2; theme=dark; sid=ann"));
        assert_ne!(by("sid=ann"), by("sid=bob"));
    }

    #[test]
    fn a_caller_without_a_usable_principal_is_refused() {
        let tenant = |parts: &Parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned());
        let scoping = Scoping { by: By::Principal(Arc::new(tenant)), ..scoping(&[], Anonymous::Share) };
        let caller = |headers: &[(&'static str, &str)]| scoping.caller(&parts(headers));
        let ann = Scope::new("shop").unwrap().with_principal("ann").unwrap();
        assert_eq!(caller(&[("x-user", "ann"), ("authorization", "Bearer 1")]), Ok(Caller::Known(ann)));
        for none in [&[] as &[_], &[("x-user", "")], &[("x-user", &*"a".repeat(256))]] {
            assert_eq!(caller(none), Err(Rejection::ScopeUnknown), "{none:?}");
        }
    }

    #[test]
    fn callers_without_credentials_are_refused_unless_they_share() {
        let caller = |anonymous, headers: &[(&'static str, &str)]| {
            scoping(&Credential::common(), anonymous).caller(&parts(headers))
        };
        let shared = Caller::Known(Scope::new("shop").unwrap());
        assert_eq!(caller(Anonymous::Share, &[("cookie", "a=1"), ("via", "1.1 a")]), Ok(shared.clone()));
        assert_eq!(caller(Anonymous::ShareLocal, &[("accept", "*/*"), ("idempotency-key", "k")]), Ok(shared));
        for name in ["forwarded", "via", "x-forwarded-for", "cf-ray", "cookie", "x-session", "token"] {
            assert!(caller(Anonymous::ShareLocal, &[(name, "a")]).is_err(), "{name}");
        }
        let refused = caller(Anonymous::Refuse, &[("cookie", "a=1")]).expect_err("nothing identifies it");
        let Rejection::ScopeMissing { expected, has_cookies } = refused else { panic!("{refused:?}") };
        assert!(expected.starts_with("authorization, x-api-key, ") && has_cookies);
    }
}
