//! The primary key of a record in a database.

use sha2::{Digest, Sha256};

use crate::store::inspect::Cursor;
use crate::words::digest::{frame, hex};
use crate::words::error::StoreError;
use crate::words::key::Key;

/// The digits of a ULID.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The 32 bytes that stand for a key in its scope: a digest of the three texts, each with its
/// length.
///
/// A key that begins with the time it was made, a UUID of version 7 or a ULID, keeps that time in
/// front of 26 bytes of the digest. Then new rows are neighbours in the index, and a checkpoint
/// costs one page image for many of them instead of one for each. A caller that makes up a time can
/// only move its own rows.
///
/// The SQL function `record_id` on Postgres computes the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id([u8; 32]);

impl Id {
    pub(crate) fn of(key: &Key) -> Self {
        let mut hash = Sha256::new();
        for part in [key.scope().realm(), key.scope().principal(), key.value()] {
            frame(&mut hash, part.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let Some(time) = uuid_time(key.value()).or_else(|| ulid_time(key.value())) else {
            return Self(digest);
        };
        let mut id = [0; 32];
        id[..6].copy_from_slice(&time.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&digest[..26]);
        Self(id)
    }

    /// The id with these stored bytes.
    #[cfg(feature = "postgres")]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The cursor of a position in a listing: an id, or the id and the columns that precede it in the
/// order.
pub(crate) fn cursor(place: &[u8]) -> Cursor {
    Cursor::new(hex(place))
}

/// The position of a cursor, which has this many bytes.
pub(crate) fn position(cursor: &Cursor, bytes: usize) -> Result<Vec<u8>, StoreError> {
    let text = cursor.as_str().as_bytes();
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    let place: Option<Vec<u8>> = text.chunks(2).map(byte).collect();
    place
        .filter(|place| place.len() == bytes)
        .ok_or_else(|| StoreError::refused("the cursor is not from this store"))
}

/// The 48 bits of time in a UUID of version 7, in its form with hyphens.
fn uuid_time(value: &str) -> Option<u64> {
    let text = value.as_bytes();
    let well_formed = text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'7',
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => byte.is_ascii_hexdigit(),
        });
    if !well_formed {
        return None;
    }
    Some(u64::from_str_radix(&value[..8], 16).ok()? << 16 | u64::from_str_radix(&value[9..13], 16).ok()?)
}

/// The 48 bits of time in a ULID.
fn ulid_time(value: &str) -> Option<u64> {
    if value.len() != 26 || value.as_bytes()[0] > b'7' {
        return None;
    }
    let mut time = 0;
    for (at, byte) in value.bytes().enumerate() {
        let digit = CROCKFORD.iter().position(|digit| *digit == byte.to_ascii_uppercase())?;
        if at < 10 {
            time = time << 5 | digit as u64;
        }
    }
    Some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::key::Scope;

    fn id(value: &str) -> Id {
        Id::of(&Key::new("realm", value).expect("a valid key"))
    }

    #[test]
    fn times_are_read() {
        assert_eq!(uuid_time("01890a5d-ac96-774b-bcce-b302099a8057"), Some(0x0189_0a5d_ac96));
        assert_eq!(uuid_time("01890A5D-AC96-774B-BCCE-B302099A8057"), Some(0x0189_0a5d_ac96));
        assert_eq!(ulid_time("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Some(1_469_922_850_259));
        assert_eq!(ulid_time("01arz3ndektsv4rrffq69g5fav"), Some(1_469_922_850_259));
        for other in [
            "01890a5d-ac96-474b-bcce-b302099a8057",
            "01890a5d-ac96-774b-ccce-b302099a8057",
            "01890a5dac96-774b-bcce-b302099a80570",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "",
        ] {
            assert_eq!((uuid_time(other), ulid_time(other)), (None, None), "{other}");
        }
    }

    #[test]
    fn keys_that_carry_their_time_keep_its_order() {
        assert!(id("01890a5d-ac96-774b-bcce-b302099a8057") < id("01890a5d-ac97-774b-bcce-b302099a8057"));
        assert!(id("01ARZ3NDEKTSV4RRFFQ69G5FAV") < id("01ARZ3NDEMTSV4RRFFQ69G5FAV"));
        assert_ne!(id("01ARZ3NDEKTSV4RRFFQ69G5FAV"), id("01arz3ndektsv4rrffq69g5fav"));
    }

    #[test]
    fn parts_are_kept_apart() {
        let of = |realm: &str, principal: &str, value: &str| {
            let scope = Scope::new(realm).and_then(|scope| scope.with_principal(principal));
            Id::of(&scope.and_then(|scope| scope.key(value)).expect("a valid key"))
        };
        assert_ne!(of("ab", "c", "d"), of("a", "bc", "d"));
        assert_ne!(of("a", "", "bc"), of("a", "b", "c"));
    }
    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let id: Vec<u8> = (100..132).collect();
        assert_eq!(position(&cursor(&id), 32).unwrap(), id);
        assert!(position(&cursor(&id), 48).is_err());
        for bad in ["", "0", "zz", "00ff", "é"] {
            assert!(position(&Cursor::new(bad), 32).is_err(), "{bad}");
        }
    }
}
