//! Digests over several parts, and bytes as hexadecimal digits.

use sha2::digest::Update;

/// Adds a part to a digest, with its length in front: no two lists of parts are the same bytes.
pub(crate) fn frame(digest: &mut impl Update, part: &[u8]) {
    digest.update(&(part.len() as u64).to_be_bytes());
    digest.update(part);
}

/// Bytes as hexadecimal digits.
///
/// Formatting byte by byte takes 19,000 instructions for the digest of a caller, a sixth of a replay
/// by the gateway.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    digits
}
