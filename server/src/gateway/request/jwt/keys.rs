//! The usable public keys of an issuer.

use anyhow::{Context, Result, ensure};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// The largest number of an issuer's keys that are read.
const MAX_KEYS: usize = 100;
/// The largest number of keys that a token is checked against: the check needs no credential, so
/// its cost is limited.
const MAX_CHECKS: usize = 4;

/// The usable keys, each with its only algorithm.
pub(super) struct Keys(Vec<PublicKey>);

struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Keys {
    /// Parses a JWK Set. Unusable keys are left out, so the result may be empty: an issuer that
    /// publishes no key any more has revoked all of them.
    ///
    /// # Errors
    /// If the text is not a JWK Set.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let set: Value = serde_json::from_slice(text).context("it is no JSON")?;
        let keys = set.get("keys").and_then(Value::as_array).context("it is no JWK Set, which has `keys`")?;
        ensure!(keys.len() <= MAX_KEYS, "it has more than {MAX_KEYS} keys");
        let usable: Vec<PublicKey> = keys.iter().filter_map(usable).collect();
        Ok(Self(usable))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed a token of this algorithm and key id: the key with that id,
    /// then a few of those without an id, or of all keys if the token has no id.
    pub(super) fn matching(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fitting = move || self.0.iter().filter(move |key| key.algorithm == algorithm);
        let named = fitting().filter(move |key| id.is_some() && key.id.as_deref() == id);
        let unnamed = fitting().filter(move |key| id.is_none() || key.id.is_none());
        named.chain(unnamed).take(MAX_CHECKS).map(|key| &key.key)
    }
}

/// The usable form of a key. The type of the key decides the algorithm: a public key is never taken
/// for the secret of an HMAC.
fn usable(key: &Value) -> Option<PublicKey> {
    let key: Jwk = serde_json::from_value(key.clone()).ok()?;
    let (algorithm, named) = match &key.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &key.common;
    let verifies = common.key_algorithm.is_none_or(|own| own == named)
        && common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|does| does.contains(&KeyOperations::Verify));
    let decoding = DecodingKey::from_jwk(&key).ok().filter(|_| verifies)?;
    Some(PublicKey { id: common.key_id.clone(), algorithm, key: decoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str =
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a""#;

    #[test]
    fn only_public_keys_for_signatures_are_used() {
        let of = |more: &str| Keys::parse(format!(r#"{{"keys":[{ED}{more}}}]}}"#).as_bytes());
        for good in ["", r#","use":"sig""#, r#","alg":"EdDSA","key_ops":["verify"]"#] {
            assert_eq!(of(good).map(|keys| keys.0.len()).unwrap_or(0), 1, "{good}");
        }
        for bad in [r#","use":"enc""#, r#","alg":"HS256""#, r#","key_ops":["sign"]"#] {
            assert!(of(bad).unwrap().is_empty(), "{bad}");
        }
        let secret = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#;
        assert!(Keys::parse(secret.as_bytes()).unwrap().is_empty());
        for none in [r#"{"keys":[]}"#, r#"{"keys":[1]}"#] {
            assert!(Keys::parse(none.as_bytes()).unwrap().is_empty(), "{none}");
        }
        for bad in ["", "[]", "{}"] {
            assert!(Keys::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_found_by_its_algorithm_and_id() {
        let keys = Keys::parse(format!(r#"{{"keys":[{ED}}},{{"kty":"new"}}]}}"#).as_bytes()).unwrap();
        let found = |algorithm, id| keys.matching(algorithm, id).count();
        assert_eq!(found(Algorithm::EdDSA, Some("a")), 1);
        assert_eq!(found(Algorithm::EdDSA, None), 1);
        assert_eq!(found(Algorithm::EdDSA, Some("b")), 0);
        assert_eq!(found(Algorithm::RS256, Some("a")), 0);
    }

    /// Regression: an unsigned token was checked against 100 keys.
    #[test]
    fn a_token_is_checked_against_a_few_keys_and_first_against_the_one_that_it_names() {
        let unnamed = ED.replace(r#","kid":"a""#, "");
        let others = format!("{unnamed}}},").repeat(90);
        let keys = Keys::parse(format!(r#"{{"keys":[{others}{ED}}}]}}"#).as_bytes()).unwrap();
        assert_eq!(keys.matching(Algorithm::EdDSA, None).count(), MAX_CHECKS);
        assert_eq!(keys.matching(Algorithm::EdDSA, Some("b")).count(), MAX_CHECKS);
        let named = &keys.0.last().unwrap().key;
        assert!(std::ptr::eq(keys.matching(Algorithm::EdDSA, Some("a")).next().unwrap(), named));
    }
}
