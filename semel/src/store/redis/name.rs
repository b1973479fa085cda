//! The names of records in Redis.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::words::error::StoreError;
use crate::words::key::{Key, Scope};

/// The characters that may not appear in a part of a name: the separator of the parts, the escape
/// character, and braces, because a cluster would choose the node by the text within them, which
/// may be a user's.
const RESERVED: &AsciiSet = &CONTROLS.add(b':').add(b'%').add(b'{').add(b'}');

/// The name of one record: the prefix, realm, principal and value, joined by colons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(Vec<u8>);

impl Name {
    pub(super) fn new(prefix: &str, key: &Key) -> Self {
        let scope = key.scope();
        let mut name = prefix.as_bytes().to_vec();
        for part in [scope.realm(), scope.principal(), key.value()] {
            name.push(b':');
            name.extend(encoded(part));
        }
        Self(name)
    }

    /// The name of the secret beside the records. It is not a name of a record, which has three
    /// parts.
    pub(super) fn of_secret(prefix: &str) -> Self {
        Self([prefix.as_bytes(), b":secret"].concat())
    }

    /// A name that Redis has listed.
    pub(super) fn listed(name: Vec<u8>) -> Self {
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key that the name stands for.
    ///
    /// # Errors
    /// Corrupt if it is not the name of a record.
    pub(super) fn key(&self, prefix: &str) -> Result<Key, StoreError> {
        let corrupt = || StoreError::corrupt("a name in Redis is not the name of a record");
        let parts = self.0.strip_prefix(prefix.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
        let mut parts = parts.ok_or_else(corrupt)?.split(|byte| *byte == b':');
        let mut part = || -> Result<String, StoreError> {
            let text = percent_decode(parts.next().ok_or_else(corrupt)?).decode_utf8();
            text.map(Cow::into_owned).map_err(|e| corrupt().with_source(e))
        };
        let (realm, principal, value) = (part()?, part()?, part()?);
        Scope::new(&realm)
            .and_then(|scope| scope.with_principal(&principal))
            .and_then(|scope| scope.key(&value))
            .map_err(|e| corrupt().with_source(e))
    }

    /// A digest that distinguishes names.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// The slot of a cluster to which this name belongs.
    pub(super) fn slot(&self) -> u16 {
        crc16(&self.0) % SLOTS
    }
}

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The pattern of all names of a realm, or of all realms.
pub(super) fn pattern(prefix: &str, realm: Option<&str>) -> Vec<u8> {
    let mut pattern = prefix.as_bytes().to_vec();
    pattern.push(b':');
    for byte in realm.into_iter().flat_map(encoded) {
        if b"*?[]^-\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    if realm.is_some() {
        pattern.push(b':');
    }
    pattern.push(b'*');
    pattern
}

fn encoded(part: &str) -> impl Iterator<Item = u8> {
    percent_encode(part.as_bytes(), RESERVED).flat_map(str::bytes)
}

/// CRC-16 in its variant XMODEM, by which clusters of Redis assign names to slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(realm: &str, principal: &str, value: &str) -> Key {
        Scope::new(realm).unwrap().with_principal(principal).unwrap().key(value).unwrap()
    }

    #[test]
    fn a_name_leads_back_to_its_key() {
        for key in [key("shop", "", "a b"), key("a:b", "c%3A", "d{e}:f%"), key("é", "ü:", "%25")] {
            let name = Name::new("semel", &key);
            assert_eq!(name.key("semel").unwrap(), key);
            assert_eq!(name.as_bytes().iter().filter(|byte| **byte == b':').count(), 3);
            assert!(!name.as_bytes().contains(&b'{'));
        }
        let two = [key("a:", "b", "c"), key("a", ":b", "c")].map(|key| Name::new("semel", &key));
        assert_ne!(two[0], two[1]);
    }

    #[test]
    fn what_stands_for_no_key_is_an_error() {
        for bad in ["", "semel", "semel:", "semel:a:b", "other:a:b:c", "semel:a:b:%ff"] {
            assert!(Name::listed(bad.into()).key("semel").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_takes_a_realm_literally() {
        assert_eq!(pattern("semel", None), b"semel:*");
        assert_eq!(pattern("semel", Some("a*[b]:")), br"semel:a\*\[b\]%3A:*");
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The value is from the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
