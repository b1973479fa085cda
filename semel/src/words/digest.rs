//! Digests over several parts, and bytes as hexadecimal digits.

use sha2::digest::Update;

/// Adds a part to a digest, with its length in front: no two lists of parts are the same bytes.
pub(crate) fn frame(digest: &mut impl Update, part: &[u8]) {
    digest.update(&(part.len() as u64).to_be_bytes());
    digest.update(part);
}

/// Bytes as hexadecimal digits.
#[cfg(any(test, feature = "http", feature = "postgres", feature = "sqlite"))]
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
