//! The fingerprint of a request, in 32 bytes.

use std::fmt;

use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::digest::frame;

/// A SHA-256 digest of the request, with the version of the rules that made it.
///
/// Every part is hashed with its length in front, so that `"ab" + "c"` and `"a" + "bc"` differ.
/// Each way of making a fingerprint has a tag of its own, so that two ways never produce the same
/// digest by chance.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version of the rules below. Stores keep it beside the digest: digests of two versions
    /// cannot be compared.
    pub const VERSION: u8 = 1;

    /// The largest integer up to which all JSON tools agree, 2^53.
    const MAX_JSON_INTEGER: u64 = 1 << 53;

    /// The fingerprint of the bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::framed("bytes", &[bytes])
    }

    /// The fingerprint of several parts, whose boundaries count.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        Self::framed("parts", parts)
    }

    /// The fingerprint of a value: of its JSON with sorted object keys and exact integers, so that
    /// the order of a `HashMap` does not matter.
    ///
    /// JSON has no sets and no infinities. A `HashSet` is hashed as a list in its arbitrary order,
    /// so use a `BTreeSet`; a float that is not finite is hashed as `None`.
    ///
    /// # Errors
    /// [`FingerprintError::Serialize`] if the value has no JSON form.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, FingerprintError> {
        let mut tree = serde_json::to_value(value).map_err(FingerprintError::Serialize)?;
        tree.sort_all_objects();
        let json = serde_json::to_vec(&tree).map_err(FingerprintError::Serialize)?;
        Ok(Self::framed("value", &[&json]))
    }

    /// The fingerprint of a JSON text in its canonical form (RFC 8785): white space, the order of
    /// keys and the notation of numbers do not matter.
    ///
    /// ```
    /// use semel::Fingerprint;
    ///
    /// let one = Fingerprint::of_canonical_json(br#"{"to": "ann", "amount": 1.50}"#)?;
    /// let other = Fingerprint::of_canonical_json(br#"{"amount":1.5,"to":"ann"}"#)?;
    /// assert_eq!(one, other);
    /// # Ok::<(), semel::error::FingerprintError>(())
    /// ```
    ///
    /// # Errors
    /// [`FingerprintError::Json`] if the text is not JSON, or holds something that the canonical
    /// form would lose: a key twice in one object, or an integer beyond 2^53, where two different
    /// numbers become one.
    pub fn of_canonical_json(json: &[u8]) -> Result<Self, FingerprintError> {
        Ok(Self::framed("canonical json", &[&canonical(&strict_json(json)?)?]))
    }

    /// A fingerprint read from a store.
    ///
    /// # Errors
    /// [`FingerprintError::Version`] if another version of the rules made it,
    /// [`FingerprintError::Length`] if it is not 32 bytes long. Neither means that the requests
    /// differ.
    pub fn from_stored(version: u8, digest: &[u8]) -> Result<Self, FingerprintError> {
        if version != Self::VERSION {
            return Err(FingerprintError::Version { found: version });
        }
        let digest = digest.try_into().map_err(|_| FingerprintError::Length { found: digest.len() })?;
        Ok(Self { version, digest })
    }

    /// The version of the rules that made it.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The 32 bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.digest
    }

    fn framed(tag: &str, parts: &[&[u8]]) -> Self {
        let mut framer = Framer::new(tag);
        parts.iter().for_each(|part| framer.part(part));
        framer.finish()
    }
}

/// A hash over parts, each with its length in front.
pub(crate) struct Framer(Sha256);

impl Framer {
    /// A framer for one way of making a fingerprint.
    pub(crate) fn new(tag: &str) -> Self {
        let mut framer = Self(Sha256::new());
        framer.part(tag.as_bytes());
        framer
    }

    pub(crate) fn part(&mut self, part: &[u8]) {
        frame(&mut self.0, part);
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint { version: Fingerprint::VERSION, digest: self.0.finalize().into() }
    }
}

/// A JSON text whose canonical form belongs to no other value.
pub(crate) fn strict_json(json: &[u8]) -> Result<Value, FingerprintError> {
    let StrictJson(tree) = serde_json::from_slice(json).map_err(FingerprintError::Json)?;
    Ok(tree)
}

/// The canonical form (RFC 8785) of a JSON value.
pub(crate) fn canonical(tree: &Value) -> Result<Vec<u8>, FingerprintError> {
    serde_json_canonicalizer::to_vec(tree).map_err(FingerprintError::Json)
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.digest;
        write!(f, "Fingerprint({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// The reason why a fingerprint cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// The value cannot be written as JSON.
    #[error("the value cannot be written as JSON")]
    Serialize(#[source] serde_json::Error),
    /// The text is not JSON, or not JSON with one canonical form.
    #[error("the body has no canonical JSON form")]
    Json(#[source] serde_json::Error),
    /// Other rules made the stored fingerprint.
    #[error("fingerprint version {found} is not known here, only {}", Fingerprint::VERSION)]
    Version {
        /// The stored version.
        found: u8,
    },
    /// The stored fingerprint has the wrong length.
    #[error("fingerprint is {found} bytes long, not 32")]
    Length {
        /// The stored length.
        found: usize,
    },
}

/// JSON in which no two different values have the same canonical form.
struct StrictJson(Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = StrictJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated keys and without integers beyond 2^53")
    }

    fn visit_unit<E: de::Error>(self) -> Result<StrictJson, E> {
        Ok(StrictJson(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<StrictJson, E> {
        Ok(StrictJson(Value::Bool(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<StrictJson, E> {
        if value > Fingerprint::MAX_JSON_INTEGER {
            return Err(E::custom(format_args!("the integer {value} is beyond 2^53")));
        }
        Ok(StrictJson(Value::Number(value.into())))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<StrictJson, E> {
        if value.unsigned_abs() > Fingerprint::MAX_JSON_INTEGER {
            return Err(E::custom(format_args!("the integer {value} is beyond 2^53")));
        }
        Ok(StrictJson(Value::Number(value.into())))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<StrictJson, E> {
        // An integer too large for 64 bits, or one written with a point, has already been rounded
        // here.
        if value.abs() >= Fingerprint::MAX_JSON_INTEGER as f64 && value.fract() == 0.0 {
            return Err(E::custom(format_args!("the integer {value} is beyond 2^53")));
        }
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(StrictJson(Value::Number(number)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<StrictJson, E> {
        Ok(StrictJson(Value::String(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StrictJson, A::Error> {
        let mut items = Vec::new();
        while let Some(StrictJson(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(StrictJson(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StrictJson, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom("an object holds the same key twice"));
            }
            let StrictJson(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(StrictJson(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::error::Error;

    use super::*;

    fn canonical(json: &str) -> Result<Fingerprint, String> {
        Fingerprint::of_canonical_json(json.as_bytes())
            .map_err(|e| e.source().expect("a JSON error has a cause").to_string())
    }

    #[test]
    fn parts_are_kept_apart() {
        let of = |parts: &[&[u8]]| Fingerprint::of_parts(parts);
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
        assert_ne!(of(&[b"ab"]), Fingerprint::of_bytes(b"ab"));
    }

    #[test]
    fn version_1_does_not_change() {
        let hex = crate::words::digest::hex(Fingerprint::of_bytes(b"semel").as_bytes());
        // printf '\0\0\0\0\0\0\0\5bytes\0\0\0\0\0\0\0\5semel' | sha256sum
        assert_eq!(hex, "2aac75840408750da898f7e9f3e62da9bcdfc39a4d310fe7c21b91a1272df864");
    }

    #[test]
    fn the_order_of_a_map_does_not_matter() {
        let numbers: Vec<(String, u64)> = (0..50).map(|n| (n.to_string(), n)).collect();
        let one: HashMap<_, _> = numbers.iter().cloned().collect();
        let other: HashMap<_, _> = numbers.into_iter().rev().collect();
        assert_eq!(Fingerprint::of(&one).unwrap(), Fingerprint::of(&other).unwrap());
    }

    #[test]
    fn large_integers_of_values_stay_exact() {
        let of = |n: u64| Fingerprint::of(&n).unwrap();
        assert_ne!(of(9_007_199_254_740_993), of(9_007_199_254_740_992));
    }

    #[test]
    fn canonical_json_ignores_spelling_only() {
        assert_eq!(canonical(r#"{"a":1,"b":[1.0,"é"]}"#), canonical("{ \"b\":[1,\"\\u00e9\"],\"a\":1e0 }"));
        assert_ne!(canonical("[1,2]"), canonical("[2,1]"));
        assert_ne!(canonical("1"), canonical("\"1\""));
    }

    #[test]
    fn canonical_json_refuses_what_it_would_blur() {
        assert!(canonical("9007199254740993").unwrap_err().contains("9007199254740993 is beyond 2^53"));
        assert!(canonical("-9007199254740993").unwrap_err().contains("beyond 2^53"));
        assert!(canonical("123456789012345678901234567890").unwrap_err().contains("beyond 2^53"));
        assert!(canonical("9007199254740993.0").unwrap_err().contains("beyond 2^53"));
        assert!(canonical(r#"{"a":1,"a":2}"#).unwrap_err().contains("same key twice"));
        assert!(canonical(r#"[{"x":{"a":1,"\u0061":2}}]"#).unwrap_err().contains("same key twice"));
        assert!(canonical("{").is_err());
    }

    #[test]
    fn another_version_is_an_error_not_a_mismatch() {
        let kept = Fingerprint::of_bytes(b"x");
        assert_eq!(Fingerprint::from_stored(1, kept.as_bytes()).unwrap(), kept);
        assert!(Fingerprint::from_stored(2, kept.as_bytes()).is_err());
        assert!(Fingerprint::from_stored(1, &kept.as_bytes()[..31]).is_err());
    }
}
