//! Whose key it is, from the request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ::http::header::{COOKIE, HeaderName};
use ::http::request::Parts;
use sha2::{Digest, Sha256};

use crate::key::Scope;

/// The application's word on who calls.
type Says = dyn Fn(&Parts) -> Option<Scope> + Send + Sync;

/// How the scope of a key is found.
#[derive(Clone)]
pub(super) enum Scoping {
    /// A digest of these headers, within a realm; without any of them, the whole realm.
    Credentials { realm: Scope, names: Arc<[HeaderName]> },
    /// As the application says.
    Application(Arc<Says>),
}

impl Scoping {
    /// The scope of this request; `None` if the application does not know.
    pub(super) fn of(&self, parts: &Parts) -> Option<Scope> {
        match self {
            Self::Application(says) => says(parts),
            Self::Credentials { realm, names } => match digest(parts, names) {
                None => Some(realm.clone()),
                // Hexadecimal digits are a valid principal.
                Some(principal) => realm.clone().with_principal(&principal).ok(),
            },
        }
    }
}

impl fmt::Debug for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(_) => f.write_str("Application"),
            Self::Credentials { realm, names } => {
                f.debug_struct("Credentials").field("realm", &realm.realm()).field("names", names).finish()
            }
        }
    }
}

/// A digest of all credentials of a request, each with its name, their number and their lengths, as hexadecimal
/// digits.
fn digest(parts: &Parts, names: &[HeaderName]) -> Option<String> {
    if !names.iter().any(|name| parts.headers.contains_key(name)) {
        return None;
    }
    let mut hash = Sha256::new();
    for name in names {
        let mut values: Vec<_> =
            parts.headers.get_all(name).iter().map(|value| Cow::from(value.as_bytes())).collect();
        // HTTP/2 may send cookies one by one, and they mean the same as in one field (RFC 9113, 8.2.3).
        if name == COOKIE && values.len() > 1 {
            values = vec![values.join(b"; ".as_slice()).into()];
        }
        hash.update((values.len() as u64).to_be_bytes());
        for value in values {
            hash.update((value.len() as u64).to_be_bytes());
            hash.update(value);
        }
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use ::http::Request;
    use ::http::header::AUTHORIZATION;

    use super::*;

    fn scope_of(headers: &[(HeaderName, &str)]) -> Scope {
        let names = Arc::from([AUTHORIZATION, COOKIE]);
        let scoping = Scoping::Credentials { realm: Scope::new("shop").unwrap(), names };
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        scoping.of(&request.into_parts().0).expect("a scope")
    }

    #[test]
    fn credentials_keep_callers_apart() {
        let ann = scope_of(&[(AUTHORIZATION, "Bearer ann")]);
        assert_eq!(ann, scope_of(&[(AUTHORIZATION, "Bearer ann")]));
        assert_ne!(ann, scope_of(&[(AUTHORIZATION, "Bearer bob")]));
        assert_ne!(ann, scope_of(&[(COOKIE, "Bearer ann")]));
        assert_ne!(ann, scope_of(&[(AUTHORIZATION, "Bearer ann"), (COOKIE, "a=1")]));
        assert_ne!(ann, scope_of(&[]));
        let two = scope_of(&[(COOKIE, "a=1"), (COOKIE, "b=2")]);
        assert_ne!(two, scope_of(&[(COOKIE, "a=1b=2")]));
        assert_eq!(two, scope_of(&[(COOKIE, "a=1; b=2")]));
    }

    #[test]
    fn a_scope_does_not_show_the_credentials() {
        let scope = scope_of(&[(AUTHORIZATION, "Bearer secret")]);
        assert_eq!(scope.realm(), "shop");
        assert_eq!(scope.principal().len(), 64);
        assert!(!scope.principal().contains("secret"));
    }
}
