//! Verification of signatures by ring, which is already present for TLS.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use crate::output::hex;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the verifier of tokens in the whole process.
pub(super) fn install() {
    // An error means that it is installed already.
    let _before = PROVIDER.install_default();
}

/// The SHA-256 digest of a text, as hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    hex(digest.as_ref())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let fits = matches!(algorithm, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA);
    if !fits || key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(ByRing { algorithm: *algorithm, key: key.clone() }))
}

struct ByRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
