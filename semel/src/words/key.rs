//! Keys and their scopes.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::words::text::{Rule, TextError};

const REALM: Rule =
    Rule { part: "realm", min_bytes: 1, max_bytes: Scope::MAX_BYTES, ascii_only: false, outer_spaces: false };
const PRINCIPAL: Rule = Rule {
    part: "principal",
    min_bytes: 0,
    max_bytes: Scope::MAX_BYTES,
    ascii_only: false,
    outer_spaces: false,
};
const VALUE: Rule =
    Rule { part: "key", min_bytes: 1, max_bytes: Key::MAX_BYTES, ascii_only: true, outer_spaces: false };

/// The owner of a key.
///
/// The same value in two scopes is two independent keys. The `realm` is the tenant or the service;
/// the `principal` is the stable identity of the caller and may be empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    realm: Arc<str>,
    principal: Arc<str>,
}

impl Scope {
    /// The largest number of bytes in a realm or a principal.
    pub const MAX_BYTES: usize = 255;

    /// The scope of a whole realm, with an empty principal.
    ///
    /// # Errors
    /// [`KeyError`] if the realm is empty, longer than [`Scope::MAX_BYTES`], or holds control
    /// characters.
    pub fn new(realm: &str) -> Result<Self, KeyError> {
        Ok(Self { realm: REALM.check(realm)?, principal: Arc::default() })
    }

    /// The same realm with a principal.
    ///
    /// # Errors
    /// [`KeyError`] if the principal is longer than [`Scope::MAX_BYTES`] or holds control
    /// characters.
    pub fn with_principal(self, principal: &str) -> Result<Self, KeyError> {
        Ok(Self { principal: PRINCIPAL.check(principal)?, ..self })
    }

    /// The key with this value in this scope.
    ///
    /// # Errors
    /// [`KeyError`] if the value is not 1 to 255 printable ASCII characters without a space at
    /// either end.
    pub fn key(&self, value: &str) -> Result<Key, KeyError> {
        let value = VALUE.check(value)?;
        Ok(Key(Arc::new(Parts { scope: self.clone(), value })))
    }

    /// The tenant or service.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The caller; empty if the scope is a whole realm.
    pub fn principal(&self) -> &str {
        &self.principal
    }
}

/// A scope and the value that the client chose.
///
/// ```
/// use semel::Key;
///
/// let job = Key::new("billing", "invoice-42")?;
/// let request = Key::scoped("shop", "customer-7", "8e03978e-40d5-43dd-bc93-6894a57f9324")?;
/// assert_ne!(job, request);
///
/// let refused = Key::new("billing", " invoice-42").unwrap_err();
/// assert_eq!(refused.to_string(), "key begins or ends with a space");
/// # Ok::<(), semel::error::KeyError>(())
/// ```
///
/// A key is one pointer: clones share its content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<Parts>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    scope: Scope,
    value: Box<str>,
}

impl Key {
    /// The largest number of characters in a key's value.
    pub const MAX_BYTES: usize = 255;

    /// A key in a realm, with an empty principal.
    ///
    /// # Errors
    /// [`KeyError`] if the realm or the value breaks a limit; the message says which.
    pub fn new(realm: &str, value: &str) -> Result<Self, KeyError> {
        Scope::new(realm)?.key(value)
    }

    /// A key of one caller in a realm.
    ///
    /// # Errors
    /// [`KeyError`] if the realm, the principal or the value breaks a limit; the message says
    /// which.
    pub fn scoped(realm: &str, principal: &str, value: &str) -> Result<Self, KeyError> {
        Scope::new(realm)?.with_principal(principal)?.key(value)
    }

    /// The owner of the key.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// The value that the client chose.
    pub fn value(&self) -> &str {
        &self.0.value
    }
}

/// Shows the realm and at most half of the value: whole keys do not belong in logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { scope, value } = &*self.0;
        let shown = &value[..(value.len() / 2).min(4)];
        write!(f, "Key({}/{shown}…)", scope.realm)
    }
}

/// A value that names a key: a [`Key`], a realm and a value, or a realm, a principal and a value.
pub trait IntoKey {
    /// The key.
    ///
    /// # Errors
    /// [`KeyError`] if a part breaks a limit; the message says which.
    fn into_key(self) -> Result<Key, KeyError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self.clone())
    }
}

impl<R: AsRef<str>, V: AsRef<str>> IntoKey for (R, V) {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self.0.as_ref(), self.1.as_ref())
    }
}

impl<R: AsRef<str>, P: AsRef<str>, V: AsRef<str>> IntoKey for (R, P, V) {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::scoped(self.0.as_ref(), self.1.as_ref(), self.2.as_ref())
    }
}

/// The error for a realm, principal or key that breaks a limit; the message names the part and the
/// limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct KeyError(#[from] TextError);

impl KeyError {
    /// The broken limit, as a value.
    pub fn fault(&self) -> &TextError {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(value: &str) -> String {
        Key::new("r", value).expect_err("this key breaks a limit").to_string()
    }

    #[test]
    fn a_key_is_1_to_255_printable_ascii_characters() {
        for good in ["a", "8e03978e-40d5", "urn:x/y,z=:+", "two words", &"k".repeat(255)] {
            assert_eq!(Key::new("r", good).expect("a valid key").value(), good);
        }
        assert_eq!(refused(""), "key is empty");
        assert_eq!(refused(&"k".repeat(256)), "key is 256 bytes long, the limit is 255");
        assert_eq!(
            refused("a\tb"),
            "key has the character '\\t' at byte 1; allowed are printable ASCII characters"
        );
        assert_eq!(
            refused("clé"),
            "key has the character 'é' at byte 2; allowed are printable ASCII characters"
        );
        assert_eq!(refused("a "), "key begins or ends with a space");
        assert!(refused("a\0").contains("'\\0' at byte 1"));
        assert!(refused("a\u{7f}").contains("at byte 1"));
    }

    #[test]
    fn a_scope_names_the_part_that_is_wrong() {
        assert_eq!(Scope::new("").unwrap_err().to_string(), "realm is empty");
        let scope = Scope::new("r").unwrap();
        assert_eq!(
            scope.with_principal(&"p".repeat(256)).unwrap_err().to_string(),
            "principal is 256 bytes long, the limit is 255"
        );
    }

    #[test]
    fn a_tuple_names_a_key() {
        let scoped = Scope::new("shop").unwrap().with_principal("ann").unwrap().key("k").unwrap();
        assert_eq!(("shop", "ann", "k").into_key(), Ok(scoped.clone()));
        assert_eq!(Key::scoped("shop", "ann", "k"), Ok(scoped.clone()));
        assert_eq!(("shop", String::from("k")).into_key(), Key::new("shop", "k"));
        assert_eq!((&scoped).into_key(), Ok(scoped));
        assert_eq!(("shop", "").into_key().unwrap_err().to_string(), "key is empty");
        assert!(Key::scoped("shop", "a\nn", "k").unwrap_err().to_string().starts_with("principal has"));
    }

    #[test]
    fn scopes_keep_keys_apart() {
        let of = |realm: &str, principal: &str| Scope::new(realm).unwrap().with_principal(principal).unwrap();
        let one = of("a", "bc").key("k").unwrap();
        assert_ne!(one, of("ab", "c").key("k").unwrap());
        assert_eq!(one, of("a", "bc").key("k").unwrap());
    }

    #[test]
    fn debug_output_does_not_hold_the_whole_key() {
        let key = Key::new("billing", "secret-4711").unwrap();
        assert_eq!(format!("{key:?}"), "Key(billing/secr…)");
        assert_eq!(format!("{:?}", Key::new("billing", "4711").unwrap()), "Key(billing/47…)");
    }
}
