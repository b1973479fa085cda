//! The stored form of an outcome's headers.
//!
//! For each header, in their order: the length of the name in 2 bytes, the name, the length of the value in 4
//! bytes, the value; lengths with the high byte first. No headers are no bytes.

use bytes::{BufMut, Bytes};

use crate::error::StoreError;
use crate::outcome::Outcome;

/// The headers of an outcome as bytes.
pub(crate) fn encode(outcome: &Outcome) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in outcome.headers() {
        // Both lengths are within limits that the outcome checked when it was made.
        bytes.put_u16(name.len() as u16);
        bytes.put_slice(name.as_bytes());
        bytes.put_u32(value.len() as u32);
        bytes.put_slice(value);
    }
    bytes
}

/// An outcome with the headers that these bytes stand for.
///
/// # Errors
/// Corrupt if they stand for none.
pub(crate) fn decode(bytes: &[u8], into: Outcome) -> Result<Outcome, StoreError> {
    if bytes.is_empty() {
        return Ok(into);
    }
    let corrupt = || StoreError::corrupt("the stored headers end too early, or are not text");
    let mut headers = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<2>().ok_or_else(corrupt)?;
        let (name, behind) =
            behind.split_at_checked(u16::from_be_bytes(*length).into()).ok_or_else(corrupt)?;
        let (length, behind) = behind.split_first_chunk::<4>().ok_or_else(corrupt)?;
        let (value, behind) =
            behind.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(corrupt)?;
        headers.push((std::str::from_utf8(name).map_err(|_| corrupt())?, Bytes::copy_from_slice(value)));
        rest = behind;
    }
    into.with_headers(headers)
        .map_err(|e| StoreError::corrupt("the stored headers break a limit").with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Outcome {
        Outcome::new(200).expect("a valid status")
    }

    #[test]
    fn headers_survive_their_stored_form() {
        let headers = [
            ("link", Bytes::from_static(b"<b>")),
            ("link", Bytes::from_static(b"<a>")),
            ("x-empty", Bytes::new()),
            ("x-bytes", Bytes::from_static(b"\0\xff")),
        ];
        let outcome = plain().with_headers(headers).unwrap();
        assert_eq!(decode(&encode(&outcome), plain()).unwrap(), outcome);
        assert_eq!(encode(&plain()), b"");
        assert_eq!(decode(b"", plain()).unwrap(), plain());
    }

    #[test]
    fn the_stored_form_does_not_change() {
        let outcome = plain().with_headers([("etag", Bytes::from_static(b"7"))]).unwrap();
        assert_eq!(encode(&outcome), b"\0\x04etag\0\0\0\x017");
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error() {
        let whole = encode(&plain().with_headers([("etag", Bytes::from_static(b"7"))]).unwrap());
        for end in 1..whole.len() {
            assert!(decode(&whole[..end], plain()).is_err(), "{end}");
        }
        let not_text = b"\0\x01\xff\0\0\0\x017";
        assert!(decode(not_text, plain()).is_err());
        let long = [b"\xff\xff".as_slice(), &[b'x'; 0xffff], b"\0\0\0\0"].concat();
        assert!(decode(&long, plain()).is_err());
    }
}
