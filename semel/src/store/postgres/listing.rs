//! The position at which a page of a listing ended.

use crate::store::inspect::Cursor;
use crate::store::shared::record_id;
use crate::words::error::StoreError;
use crate::words::time::Timestamp;

/// A position in a listing. Listings are in the order of creation, and in the order of ids among
/// records that were created together. They end with the records that existed when the listing
/// began; otherwise they would never end while other processes add records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The creation time of the last record that was looked at.
    pub(super) created_at: Timestamp,
    pub(super) id: Vec<u8>,
    /// The moment at which the listing began.
    pub(super) until: Timestamp,
}

impl Place {
    const BYTES: usize = 8 + 8 + 32;

    pub(super) fn of(cursor: &Cursor) -> Result<Self, StoreError> {
        let bytes = record_id::position(cursor, Self::BYTES)?;
        let moment = |at: usize| {
            let micros = bytes[at..at + 8].iter().fold(0, |micros, byte| micros << 8 | u64::from(*byte));
            Timestamp::from_micros(micros)
        };
        Ok(Self { until: moment(0), created_at: moment(8), id: bytes[16..].to_vec() })
    }

    pub(super) fn cursor(&self) -> Cursor {
        let moments = [self.until, self.created_at].map(|moment| moment.as_micros().to_be_bytes());
        record_id::cursor(&[moments.concat(), self.id.clone()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let moment = Timestamp::from_micros;
        let place =
            Place { created_at: moment(1_794_741_196_814_834), id: vec![7; 32], until: moment(u64::MAX) };
        assert_eq!(Place::of(&place.cursor()).unwrap(), place);
        for foreign in ["", "00", &"0".repeat(64)] {
            assert!(Place::of(&Cursor::new(foreign)).is_err(), "{foreign}");
        }
    }
}
