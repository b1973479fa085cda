//! Moments and durations in the binary format of Postgres.

use std::error::Error;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::words::time::Timestamp;

/// Postgres counts from the beginning of the year 2000.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A `timestamptz`. A moment that is too far away for Postgres becomes `infinity`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(pub(super) Timestamp);

impl ToSql for Moment {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        // The last year that Postgres knows is far within 63 bits.
        out.put_i64(if micros > i64::MAX / 2 { i64::MAX } else { micros - EPOCH_MICROS });
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_MICROS);
        Ok(Self(Timestamp::from_micros(micros.try_into().unwrap_or(0))))
    }

    accepts!(TIMESTAMPTZ);
}

/// An `interval` of microseconds, without days and months, which have no fixed length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl ToSql for Span {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(i64::try_from(self.0.as_micros())?);
        out.put_i32(0);
        out.put_i32(0);
        Ok(IsNull::No)
    }

    accepts!(INTERVAL);
    to_sql_checked!();
}
