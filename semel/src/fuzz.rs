//! Properties that must hold for any bytes, for the fuzz targets and for a short search in every
//! test run.

use bytes::Bytes;

use crate::http::parse_key;
use crate::words::fingerprint::Fingerprint;
use crate::words::outcome::Headers;

/// A header's value is either refused or is one key, which survives quoting; strict parsing accepts
/// only values that lenient parsing accepts, too.
pub fn key_parser(value: &[u8]) {
    let Ok(key) = parse_key(value, false) else {
        assert!(parse_key(value, true).is_err());
        return;
    };
    assert!(key.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
    for strict in [false, true] {
        assert_eq!(parse_key(quoted.as_bytes(), strict).as_deref(), Ok(&*key));
    }
}

/// The same bytes cut into other parts have another fingerprint. The first two bytes choose the
/// cuts.
pub fn fingerprint_framing(data: &[u8]) {
    let [one, other, bytes @ ..] = data else { return };
    let cut = |at: &u8| bytes.split_at((*at as usize).min(bytes.len()));
    let of = |(front, back): (&[u8], &[u8])| Fingerprint::of_parts(&[front, back]);
    assert_eq!(of(cut(one)) == of(cut(other)), cut(one) == cut(other));
    assert_ne!(of(cut(one)), Fingerprint::of_parts(&[bytes]));
    assert_ne!(Fingerprint::of_bytes(bytes), Fingerprint::of_parts(&[bytes]));
}

/// Stored headers are either refused or encoded back to the same bytes.
pub fn header_codec(stored: &[u8]) {
    if let Ok(headers) = Headers::from_stored(Bytes::copy_from_slice(stored)) {
        let again = Headers::new(headers.iter()).expect("they are within limits");
        assert_eq!(again.as_bytes(), stored);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use sfv::{BareItem, Parser};

    use super::*;

    /// Values that resemble keys often enough to reach deep into the parser.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let telling = proptest::sample::select(b"\"\\,; a=\t\x7f\xc3".to_vec());
        prop_oneof![vec(any::<u8>(), 0..40), vec(telling, 0..12)]
    }

    /// Bytes that are valid stored headers often enough.
    fn stored() -> impl Strategy<Value = Vec<u8>> {
        let header = ("[a-z]{1,8}", vec(any::<u8>(), 0..8)).prop_map(|(name, value)| {
            let mut bytes = vec![0, name.len() as u8];
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&[0, 0, 0, value.len() as u8]);
            bytes.extend(value);
            bytes
        });
        let whole = vec(header, 0..4).prop_map(|headers| headers.concat());
        let cut = (whole.clone(), any::<u8>()).prop_map(|(mut bytes, at)| {
            bytes.truncate(at.into());
            bytes
        });
        prop_oneof![vec(any::<u8>(), 0..40), whole, cut]
    }

    proptest! {
        #[test]
        fn any_value_is_a_key_or_refused(value in value()) {
            key_parser(&value);
        }

        /// The other implementation reads the whole grammar of structured fields; keys are the
        /// strings without parameters in it.
        #[test]
        fn quoted_keys_are_the_strings_of_structured_fields(value in value()) {
            let item = Parser::new(&value).parse::<sfv::Item>().ok().filter(|item| item.params.is_empty());
            let theirs = item.and_then(|item| match item.bare_item {
                BareItem::String(text) => Some(text.as_str().to_owned()),
                _ => None,
            });
            // White space around a header's value does not belong to it.
            let trimmed = value.trim_ascii().len() == value.len();
            let ours = parse_key(&value, true).ok().map(|key| key.into_owned());
            assert!(!trimmed || ours == theirs, "{ours:?}, {theirs:?}");
        }

        #[test]
        fn any_cut_has_a_fingerprint_of_its_own(data in vec(any::<u8>(), 0..64)) {
            fingerprint_framing(&data);
        }

        #[test]
        fn any_bytes_are_headers_or_refused(stored in stored()) {
            header_codec(&stored);
        }
    }
}
