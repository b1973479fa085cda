//! The description of a request under a key.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::words::fingerprint::{Fingerprint, FingerprintError};
use crate::words::key::Key;
use crate::words::text::{Rule, TextError};

const OPERATION: Rule = Rule {
    part: "operation",
    min_bytes: 1,
    max_bytes: Intent::MAX_OPERATION_BYTES,
    ascii_only: false,
    outer_spaces: true,
};
const RESOURCE: Rule = Rule {
    part: "resource",
    min_bytes: 0,
    max_bytes: Intent::MAX_RESOURCE_BYTES,
    ascii_only: false,
    outer_spaces: true,
};

/// The description of a request: the operation, the resource it touches, and a fingerprint of the
/// rest.
///
/// Two requests under one key are the same if all three are equal. Otherwise the intents differ,
/// and the key refuses the second.
///
/// An intent is one pointer: clones share its content.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Intent(Arc<Parts>);

#[derive(PartialEq, Eq, Hash)]
struct Parts {
    operation: Box<str>,
    resource: Box<str>,
    fingerprint: Fingerprint,
}

impl Intent {
    /// The largest number of bytes in an operation.
    pub const MAX_OPERATION_BYTES: usize = 255;
    /// The largest number of bytes in a resource.
    pub const MAX_RESOURCE_BYTES: usize = 2_048;

    /// An intent with a fingerprint made elsewhere.
    ///
    /// # Errors
    /// [`IntentError::Text`] if the operation is empty, or either text is too long or holds control
    /// characters.
    pub fn new(operation: &str, resource: &str, fingerprint: Fingerprint) -> Result<Self, IntentError> {
        let (operation, resource) = (OPERATION.check(operation)?, RESOURCE.check(resource)?);
        Ok(Self(Arc::new(Parts { operation, resource, fingerprint })))
    }

    /// An intent whose fingerprint is that of a value.
    ///
    /// # Errors
    /// [`IntentError`] if a text breaks its limit or the value has no JSON form.
    pub fn of<T: Serialize + ?Sized>(
        operation: &str,
        resource: &str,
        value: &T,
    ) -> Result<Self, IntentError> {
        Self::new(operation, resource, Fingerprint::of(value)?)
    }

    /// The operation, such as `POST /charges` or `commit-table`.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The resource of the operation; may be empty.
    pub fn resource(&self) -> &str {
        &self.0.resource
    }

    /// The digest of the rest of the request.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.0.fingerprint
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { operation, resource, fingerprint } = &*self.0;
        f.debug_struct("Intent")
            .field("operation", operation)
            .field("resource", resource)
            .field("fingerprint", fingerprint)
            .finish()
    }
}

/// A value that describes a request under a key: an [`Intent`], or a reference to the payload of the
/// request.
///
/// The intent of a payload has the realm of the key as its operation, no resource, and the
/// fingerprint [of the value](Fingerprint::of): another payload under the same key is a mismatch.
/// Where several operations share a realm, name the operation by [`Intent::of`].
pub trait IntoIntent {
    /// The intent of a request with this key.
    ///
    /// # Errors
    /// [`IntentError`] if the payload has no JSON form.
    fn into_intent(self, key: &Key) -> Result<Intent, IntentError>;
}

impl IntoIntent for Intent {
    fn into_intent(self, _: &Key) -> Result<Intent, IntentError> {
        Ok(self)
    }
}

impl IntoIntent for &Intent {
    fn into_intent(self, _: &Key) -> Result<Intent, IntentError> {
        Ok(self.clone())
    }
}

impl<T: Serialize + ?Sized> IntoIntent for &T {
    fn into_intent(self, key: &Key) -> Result<Intent, IntentError> {
        Intent::of(key.scope().realm(), "", self)
    }
}

/// The reason why an intent cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IntentError {
    /// The operation or the resource breaks a limit.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The value has no fingerprint.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_intent_counts() {
        let one = Intent::of("charge", "invoice-42", &7).unwrap();
        assert_eq!(one, Intent::of("charge", "invoice-42", &7).unwrap());
        assert_ne!(one, Intent::of("refund", "invoice-42", &7).unwrap());
        assert_ne!(one, Intent::of("charge", "invoice-43", &7).unwrap());
        assert_ne!(one, Intent::of("charge", "invoice-42", &8).unwrap());
    }

    #[test]
    fn a_payload_is_an_intent() {
        let key = Key::new("billing", "invoice-42").unwrap();
        let of = |payload: &(&str, u32)| payload.into_intent(&key).unwrap();
        assert_eq!(of(&("ann", 7)), Intent::of("billing", "", &("ann", 7)).unwrap());
        assert_ne!(of(&("ann", 7)), of(&("ann", 8)));
        assert_eq!("march".into_intent(&key).unwrap(), Intent::of("billing", "", "march").unwrap());
        let named = Intent::of("charge", "", &7).unwrap();
        assert_eq!((&named).into_intent(&key).unwrap(), named);
    }

    #[test]
    fn limits_are_named() {
        let refused = |o: &str, r: &str| Intent::of(o, r, &0).unwrap_err().to_string();
        assert_eq!(refused("", ""), "operation is empty");
        assert_eq!(refused("x", &"r".repeat(3000)), "resource is 3000 bytes long, the limit is 2048");
        assert!(refused("a\nb", "").starts_with("operation has the character '\\n'"));
    }
}
