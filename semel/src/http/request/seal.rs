//! The secret of the principals in its stored form: plain, or sealed with a secret of the
//! configuration.
//!
//! Principals are derived with a random key that never changes, so that no key of a client ever has
//! two ids. A secret of the configuration only seals it: a new one seals the same key again. So
//! processes with the old and the new secret of the configuration derive the same principals at
//! every moment of a change.
//!
//! A key of 32 bytes is sealed by a keystream of as many bytes, HMAC-SHA256 of a random nonce, and
//! a tag over both, with keys derived from the secret of the configuration: encrypt, then
//! authenticate.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

const PLAIN: u8 = 1;
const SEALED: u8 = 2;
const KEY: usize = 32;
const NONCE: usize = 16;

/// The key of the principals.
pub(in crate::http) type PrincipalKey = [u8; KEY];

/// The reason why the secret in the store cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(in crate::http) enum SealError {
    #[error(
        "the secret of the principals in the store is sealed, and no secret is configured: configure the one that the other \
         processes have"
    )]
    Sealed,
    #[error(
        "the secret of the principals in the store is sealed with another secret than those that are configured: list the \
         previous one, too, behind the new one"
    )]
    SealedOtherwise,
    #[error("the secret of the principals in the store has an unknown form")]
    Unreadable,
}

/// An opened secret, and a flag that is set if it should be sealed again, because it is not sealed
/// with the first secret of the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Unsealed {
    pub(in crate::http) key: PrincipalKey,
    pub(in crate::http) needs_sealing: bool,
}

/// The stored form of a key.
pub(in crate::http) fn seal(key: PrincipalKey, configured: Option<&[u8]>) -> Vec<u8> {
    let Some(configured) = configured else {
        return [&[PLAIN], key.as_slice()].concat();
    };
    let nonce: [u8; NONCE] = rand::random();
    let hidden = xored(key, &derived(configured, "stream", &[&nonce]));
    let tag: [u8; KEY] = derived(configured, "tag", &[&nonce, &hidden]);
    [&[SEALED], nonce.as_slice(), &hidden, &tag].concat()
}

/// The key in a stored form, by the first of the configured secrets that opens it.
pub(in crate::http) fn unseal(kept: &[u8], configured: &[Box<[u8]>]) -> Result<Unsealed, SealError> {
    match kept {
        [PLAIN, key @ ..] => {
            let key = key.try_into().map_err(|_| SealError::Unreadable)?;
            Ok(Unsealed { key, needs_sealing: !configured.is_empty() })
        }
        [SEALED, rest @ ..] if rest.len() == NONCE + KEY + KEY => {
            let (nonce, rest) = rest.split_at(NONCE);
            let (hidden, tag) = rest.split_at(KEY);
            let opens = |secret: &[u8]| mac(secret, "tag", &[nonce, hidden]).verify_slice(tag).is_ok();
            let at = configured.iter().position(|secret| opens(secret));
            let at = at.ok_or(match configured {
                [] => SealError::Sealed,
                _ => SealError::SealedOtherwise,
            })?;
            let hidden = hidden.try_into().map_err(|_| SealError::Unreadable)?;
            let key = xored(hidden, &derived(&configured[at], "stream", &[nonce]));
            Ok(Unsealed { key, needs_sealing: at > 0 })
        }
        _ => Err(SealError::Unreadable),
    }
}

fn mac(secret: &[u8], purpose: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac: Hmac<Sha256> = Hmac::new_from_slice(secret).expect("a key of any length is valid");
    mac.update(b"semel principal secret 1 ");
    mac.update(purpose.as_bytes());
    // The parts have fixed lengths, and no purpose is a prefix of another.
    parts.iter().for_each(|part| mac.update(part));
    mac
}

fn derived(secret: &[u8], purpose: &str, parts: &[&[u8]]) -> [u8; KEY] {
    mac(secret, purpose, parts).finalize().into_bytes().into()
}

fn xored(mut one: PrincipalKey, other: &PrincipalKey) -> PrincipalKey {
    one.iter_mut().zip(other).for_each(|(one, other)| *one ^= other);
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(secrets: &[&str]) -> Vec<Box<[u8]>> {
        secrets.iter().map(|secret| Box::from(secret.as_bytes())).collect()
    }

    #[test]
    fn a_sealed_key_is_opened_by_its_secret_only() {
        let kept = seal([7; KEY], Some(b"new"));
        assert!(!kept.windows(8).any(|window| window == [7; 8]), "the key is hidden");
        let open = |secrets: &[&str]| unseal(&kept, &configured(secrets));
        assert_eq!(open(&["new"]), Ok(Unsealed { key: [7; KEY], needs_sealing: false }));
        assert_eq!(open(&["newer", "new"]), Ok(Unsealed { key: [7; KEY], needs_sealing: true }));
        assert_eq!(open(&["other"]), Err(SealError::SealedOtherwise));
        assert_eq!(open(&[]), Err(SealError::Sealed));
        assert_ne!(kept, seal([7; KEY], Some(b"new")), "each time with another nonce");
    }

    #[test]
    fn a_changed_secret_is_not_used() {
        let kept = seal([7; KEY], Some(b"new"));
        for at in 0..kept.len() {
            let mut changed = kept.clone();
            changed[at] ^= 0x40;
            assert!(unseal(&changed, &configured(&["new"])).is_err(), "byte {at}");
        }
        assert_eq!(unseal(&kept[..kept.len() - 1], &configured(&["new"])), Err(SealError::Unreadable));
        assert_eq!(unseal(&[], &[]), Err(SealError::Unreadable));
    }

    #[test]
    fn a_key_that_is_not_sealed_is_sealed_when_a_secret_is_configured() {
        let kept = seal([7; KEY], None);
        assert_eq!(unseal(&kept, &[]), Ok(Unsealed { key: [7; KEY], needs_sealing: false }));
        assert_eq!(unseal(&kept, &configured(&["new"])), Ok(Unsealed { key: [7; KEY], needs_sealing: true }));
    }
}
