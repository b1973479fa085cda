//! The headers of an outcome, in the form in which stores keep them.
//!
//! Each header is stored in order as the length of the name in 2 bytes, the name, the length of the
//! value in 4 bytes, and the value; lengths are big-endian. An empty list of headers is stored as
//! no bytes.

use bytes::{BufMut, Bytes};

use super::{Outcome, OutcomeError};
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
use crate::words::error::StoreError;
use crate::words::text::Rule;

const NAME: Rule =
    Rule { part: "header name", min_bytes: 1, max_bytes: 255, ascii_only: true, outer_spaces: false };

/// Headers in one block of memory, however many there are.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Headers(Bytes);

impl Headers {
    /// Encodes these headers, in this order.
    ///
    /// # Errors
    /// See [`Outcome::with_headers`].
    pub(crate) fn new<'a, V: AsRef<[u8]>>(
        headers: impl IntoIterator<Item = (&'a str, V)>,
    ) -> Result<Self, OutcomeError> {
        // 256 bytes are usually enough; a larger capacity than needed is given back at the end.
        let (mut stored, mut count) = (Vec::with_capacity(256), 0);
        for (name, value) in headers {
            let (name, value): (&str, &[u8]) = (NAME.check(name)?, value.as_ref());
            stored.put_u16(name.len() as u16);
            stored.put_slice(name.as_bytes());
            // A value too long for 32 bits is refused below.
            stored.put_u32(value.len() as u32);
            stored.put_slice(value);
            count += 1;
        }
        within_limit(&stored, count)?;
        Ok(Self(Bytes::copy_from_slice(&stored)))
    }

    /// Checks stored bytes and takes them as headers.
    ///
    /// # Errors
    /// An error of the kind corrupt if the bytes are not well-formed headers.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn from_stored(bytes: Bytes) -> Result<Self, StoreError> {
        let invalid = |e| StoreError::corrupt("the stored headers break a limit").with_source(e);
        let (mut rest, mut count) = (&*bytes, 0);
        while !rest.is_empty() {
            let header = first(rest)
                .ok_or_else(|| StoreError::corrupt("the stored headers end too early, or are not text"));
            let (name, _, behind) = header?;
            NAME.check::<&str>(name).map_err(|e| invalid(e.into()))?;
            rest = behind;
            count += 1;
        }
        within_limit(&bytes, count).map_err(invalid)?;
        Ok(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number of headers.
    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (name, value, behind) = first(rest)?;
            rest = behind;
            Some((name, self.0.slice_ref(value)))
        })
    }
}

/// The name and value of the first header, and the remaining bytes; `None` if there is no header or
/// it is malformed.
fn first(stored: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, rest) = stored.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((std::str::from_utf8(name).ok()?, value, rest))
}

/// Checks the limit, which counts names and values but not their lengths.
fn within_limit(stored: &[u8], count: usize) -> Result<(), OutcomeError> {
    let (bytes, limit) = (stored.len() - 6 * count, Outcome::MAX_HEADER_BYTES);
    if bytes > limit { Err(OutcomeError::Headers { bytes, limit }) } else { Ok(()) }
}

#[cfg(all(test, any(feature = "postgres", feature = "redis", feature = "sqlite")))]
mod tests {
    use super::*;

    fn headers(bytes: &[u8]) -> Result<Headers, StoreError> {
        Headers::from_stored(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn headers_survive_their_stored_form() {
        let given: [(&str, &[u8]); 4] =
            [("link", b"<b>"), ("link", b"<a>"), ("x-empty", b""), ("x-bytes", b"\0\xff")];
        let stored = Headers::new(given).unwrap();
        assert!(stored.iter().eq(given.map(|(name, value)| (name, Bytes::from_static(value)))));
        assert_eq!(stored.count(), 4);
        assert!(headers(stored.as_bytes()).unwrap() == stored);
        assert!(headers(b"").unwrap() == Headers::default());
    }

    #[test]
    fn the_stored_form_does_not_change() {
        assert_eq!(Headers::new([("etag", "7")]).unwrap().as_bytes(), b"\0\x04etag\0\0\0\x017");
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error() {
        let whole = Headers::new([("etag", "7")]).unwrap();
        for end in 1..whole.as_bytes().len() {
            assert!(headers(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
        let not_text = b"\0\x01\xff\0\0\0\x017";
        assert!(headers(not_text).is_err());
        let no_name = b"\0\0\0\0\0\x017";
        assert!(headers(no_name).is_err());
        let long = [b"\xff\xff".as_slice(), &[b'x'; 0xffff], b"\0\0\0\0"].concat();
        assert!(headers(&long).is_err());
        let large = [b"\0\x01x\0\x01\0\0".as_slice(), &[0; 0x1_0000]].concat();
        assert!(headers(&large).is_err());
    }
}
