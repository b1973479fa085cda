//! Whose key it is, from the request.

use std::fmt;
use std::sync::Arc;

use ::http::header::{COOKIE, HeaderName};
use ::http::request::Parts;
use sha2::{Digest, Sha256};

use crate::fault;
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
            Self::Credentials { realm, .. } if fault::makes("unscoped_key") => Some(realm.clone()),
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

/// A digest of the credentials that a request has, each with its name, as hexadecimal digits.
fn digest(parts: &Parts, names: &[HeaderName]) -> Option<String> {
    let mut present = names.iter().filter(|name| parts.headers.contains_key(*name)).peekable();
    present.peek()?;
    let mut hash = Sha256::new();
    let mut frame = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    frame(b"credentials 1");
    for name in present {
        // HTTP/2 may send the cookies one by one; they are the same cookies.
        let separator = if *name == COOKIE { b"; ".as_slice() } else { b", " };
        let values: Vec<_> = parts.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        frame(name.as_str().as_bytes());
        frame(&values.join(separator));
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
        let (two, one) = ([(COOKIE, "a=1"), (COOKIE, "b=2")], [(COOKIE, "a=1; b=2")]);
        assert_eq!(scope_of(&two), scope_of(&one));
        assert_ne!(scope_of(&two), scope_of(&[(COOKIE, "a=1b=2")]));
    }

    #[test]
    fn a_scope_does_not_show_the_credentials() {
        let scope = scope_of(&[(AUTHORIZATION, "Bearer secret")]);
        assert_eq!(scope.realm(), "shop");
        assert_eq!(scope.principal().len(), 64);
        assert!(!scope.principal().contains("secret"));
    }
}
