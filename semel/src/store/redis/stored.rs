//! The stored form of a record; `lua/record.lua` describes the layout of its head.

use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::store::shared::decode;
use crate::words::error::StoreError;
use crate::words::fingerprint::Fingerprint;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Token};
use crate::words::outcome::Outcome;
use crate::words::record::{Note, Owner, Record, RecordState};
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// The form that this version writes.
const FORMAT: u8 = 2;
/// The form before records had a policy and their retention: it has the end of the retention
/// instead.
const OLD_FORMAT: u8 = 1;

/// The letters for the states.
pub(super) const RUNNING: u8 = b'R';
pub(super) const DONE: u8 = b'D';
pub(super) const RELEASED: u8 = b'F';

/// The letter for a policy.
pub(super) fn policy(after_crash: AfterCrash) -> u8 {
    match after_crash {
        AfterCrash::Hold => b'H',
        AfterCrash::Retry => b'R',
        AfterCrash::Transactional => b'T',
    }
}

fn parse_policy(letter: u8) -> Result<AfterCrash, StoreError> {
    match letter {
        b'H' => Ok(AfterCrash::Hold),
        b'R' => Ok(AfterCrash::Retry),
        b'T' => Ok(AfterCrash::Transactional),
        other => Err(StoreError::corrupt(format!("the policy {other:#04x} is not known here"))),
    }
}

/// The stored form of a claim's intent and owner, which stay the same for the life of the record.
pub(super) fn asked(intent: &Intent, owner: &Owner) -> Vec<u8> {
    let mut bytes = intent_bytes(intent);
    bytes.put_slice(owner.as_str().as_bytes());
    bytes
}

/// The stored form of an intent, each text with its length.
pub(super) fn intent_bytes(intent: &Intent) -> Vec<u8> {
    let fingerprint = intent.fingerprint();
    let mut bytes = Vec::with_capacity(64 + intent.operation().len() + intent.resource().len());
    bytes.put_u8(fingerprint.version());
    bytes.put_slice(fingerprint.as_bytes());
    for text in [intent.operation(), intent.resource()] {
        // The length is within the limits that the intent checked at its creation.
        bytes.put_u16(text.len() as u16);
        bytes.put_slice(text.as_bytes());
    }
    bytes
}

/// The stored form of an outcome: status, subtype, headers, a flag for the body, its length, and
/// the body.
pub(super) fn outcome(outcome: &Outcome) -> Vec<u8> {
    let headers = outcome.stored_headers();
    let body = outcome.body();
    let mut bytes = Vec::with_capacity(16 + headers.len() + body.map_or(0, Bytes::len));
    bytes.put_u16(outcome.status());
    // A subtype is never empty, and never this long.
    let subtype = outcome.subtype().unwrap_or_default();
    bytes.put_u8(subtype.len() as u8);
    bytes.put_slice(subtype.as_bytes());
    bytes.put_u32(headers.len() as u32);
    bytes.put_slice(headers);
    bytes.put_u8(body.is_some().into());
    if let Some(body) = body {
        bytes.put_u32(body.len() as u32);
        bytes.put_slice(body);
    }
    bytes
}

/// Returns `true` for an attempt in the old form that runs or is held: the older version gave it a
/// TTL, which it loses when a script shows it.
pub(super) fn would_expire(stored: &[u8]) -> bool {
    stored.starts_with(&[OLD_FORMAT, RUNNING])
}

/// The number of bytes in front of a body that hold its length.
const BODY_LENGTH_BYTES: usize = size_of::<u32>();

/// A size that everything except the outcome fits into.
pub(super) const OUTLINE_BYTES: usize = 4_096;

/// The record in these bytes.
///
/// # Errors
/// Corrupt if they are not a record, or were written by a newer version.
pub(super) fn record(stored: &[u8], key: Key) -> Result<Record, StoreError> {
    parse(stored, key, parse_outcome)
}

/// The record in its first bytes, with an empty outcome: enough to match it against a query.
///
/// # Errors
/// As [`record`].
pub(super) fn outline(stored: &[u8], key: Key) -> Result<Record, StoreError> {
    parse(stored, key, |_| Outcome::new(200).map(Outcome::without_body).map_err(|e| corrupt("status", e)))
}

fn parse(
    stored: &[u8],
    key: Key,
    outcome: impl FnOnce(&[u8]) -> Result<Outcome, StoreError>,
) -> Result<Record, StoreError> {
    let mut rest = Reader(stored);
    let format = rest.u8()?;
    if format != FORMAT && format != OLD_FORMAT {
        return Err(StoreError::corrupt(format!("the stored record has format {format}, not {FORMAT}")));
    }
    let state = rest.u8()?;
    let after_crash = if format == FORMAT { parse_policy(rest.u8()?)? } else { AfterCrash::Hold };
    let token = Token::from_bytes(rest.array()?);
    let fence = Fence::new(rest.u64()?);
    let version = rest.u64()?;
    let attempt = rest.u64()?.try_into().map_err(|e| corrupt("attempt", e))?;
    let [lease_until, heartbeat_at, created_at, updated_at] =
        [rest.moment()?, rest.moment()?, rest.moment()?, rest.moment()?];
    let retention = match (format, rest.u64()?) {
        (OLD_FORMAT, expires_at) => {
            let begins = if state == RUNNING { created_at } else { updated_at };
            Timestamp::from_micros(expires_at).since(begins)
        }
        (_, micros) => Duration::from_micros(micros),
    };
    let (asked_bytes, note_bytes) = (rest.u16()?, rest.u16()?);
    let mut asked = Reader(rest.bytes(asked_bytes.into())?);
    let mut note = Reader(rest.bytes(note_bytes.into())?);
    let state = match state {
        RUNNING => RecordState::Running,
        RELEASED => RecordState::Released,
        // A done record is never written again.
        DONE => RecordState::Done { outcome: outcome(rest.0)?, finished_at: updated_at },
        other => return Err(StoreError::corrupt(format!("the state {other:#04x} is not known here"))),
    };
    let intent = parse_intent(&mut asked)?;
    let owner = Owner::new(asked.rest_as_text("owner")?);
    let note = match note.0 {
        [] => None,
        _ => Some(Note::new(note.moment()?, note.rest_as_text("note")?)),
    };
    Ok(Record {
        key,
        intent,
        state,
        version,
        token,
        fence,
        attempt,
        owner,
        lease_until,
        heartbeat_at,
        created_at,
        updated_at,
        retention,
        after_crash,
        note,
    })
}

pub(super) fn parse_intent(bytes: &mut Reader<'_>) -> Result<Intent, StoreError> {
    let version = bytes.u8()?;
    let fingerprint =
        Fingerprint::from_stored(version, &bytes.array::<32>()?).map_err(|e| corrupt("fingerprint", e))?;
    let operation = bytes.text("operation")?;
    let resource = bytes.text("resource")?;
    Intent::new(operation, resource, fingerprint).map_err(|e| corrupt("intent", e))
}

pub(super) fn parse_outcome(bytes: &[u8]) -> Result<Outcome, StoreError> {
    let mut rest = Reader(bytes);
    let status = rest.u16()?;
    let subtype_bytes = rest.u8()?;
    let subtype = Reader(rest.bytes(subtype_bytes.into())?).rest_as_text("subtype")?;
    let header_bytes = rest.u32()?;
    let headers = rest.bytes(header_bytes as usize)?;
    let body = match rest.u8()? {
        0 => None,
        _ => {
            let length = rest.u32()?;
            Some(rest.bytes(length as usize)?)
        }
    };
    decode::outcome(status, Some(subtype).filter(|subtype| !subtype.is_empty()), headers, body)
}

/// The size of the stored outcome that begins with these bytes. If they end before the length of the
/// body, it is the largest possible size.
pub(super) fn outcome_bytes(first: &[u8]) -> Result<usize, StoreError> {
    let mut rest = Reader(first);
    let _status = rest.u16()?;
    let subtype_bytes = rest.u8()?;
    rest.bytes(subtype_bytes.into())?;
    let header_bytes = rest.u32()? as usize;
    let before_body = first.len() - rest.0.len() + header_bytes + 1;
    if rest.bytes(header_bytes).is_err() {
        return Ok(before_body + BODY_LENGTH_BYTES + Outcome::MAX_BODY_BYTES);
    }
    match (rest.u8(), rest.u32()) {
        (Ok(0), _) => Ok(before_body),
        (_, Ok(body_bytes)) => Ok(before_body + BODY_LENGTH_BYTES + body_bytes as usize),
        _ => Ok(before_body + BODY_LENGTH_BYTES + Outcome::MAX_BODY_BYTES),
    }
}

fn corrupt(what: &str, why: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt(format!("the stored {what} breaks a rule")).with_source(why)
}

/// A reader of bytes from the front.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (front, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| StoreError::corrupt("the stored record ends too early"))?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let front = self.bytes(N)?;
        front.try_into().map_err(|e| corrupt("length", e))
    }

    pub(super) fn u8(&mut self) -> Result<u8, StoreError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, StoreError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, StoreError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, StoreError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn moment(&mut self) -> Result<Timestamp, StoreError> {
        self.u64().map(Timestamp::from_micros)
    }

    fn text(&mut self, what: &str) -> Result<&'a str, StoreError> {
        let length = self.u16()?;
        Reader(self.bytes(length.into())?).rest_as_text(what)
    }

    fn rest_as_text(&self, what: &str) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.0).map_err(|e| corrupt(what, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(format: u8) -> Vec<u8> {
        let intent = Intent::of("POST /charges", "invoice 7", &1).unwrap();
        let asked = asked(&intent, &Owner::new("worker 7"));
        let kept = Outcome::new(201).unwrap().with_body("created").unwrap().with_subtype("new").unwrap();
        let outcome = outcome(&kept.with_headers([("etag", "7")]).unwrap());
        let mut bytes = if format == OLD_FORMAT { vec![format, DONE] } else { vec![format, DONE, b'R'] };
        bytes.put_slice(&[7; 16]);
        // The numbers are fence, version, attempt, four moments and the retention, or the moment at
        // which it ends.
        (1..=8).for_each(|number| bytes.put_u64(number));
        bytes.put_u16(asked.len() as u16);
        bytes.put_u16(12);
        bytes.put_slice(&asked);
        bytes.put_u64(9);
        bytes.put_slice(b"note");
        bytes.put_slice(&outcome);
        bytes
    }

    fn key() -> Key {
        Key::new("realm", "key").unwrap()
    }

    #[test]
    fn the_stored_form_does_not_change() {
        let record = record(&whole(FORMAT), key()).unwrap();
        let moment = Timestamp::from_micros;
        assert_eq!((record.fence, record.version, record.attempt), (Fence::new(1), 2, 3));
        assert_eq!((record.lease_until, record.heartbeat_at), (moment(4), moment(5)));
        assert_eq!((record.created_at, record.updated_at), (moment(6), moment(7)));
        assert_eq!((record.retention, record.after_crash), (Duration::from_micros(8), AfterCrash::Retry));
        assert_eq!((record.owner.as_str(), record.intent.resource()), ("worker 7", "invoice 7"));
        assert_eq!(record.note, Some(Note::new(moment(9), "note")));
        let outcome = record.outcome().unwrap();
        assert_eq!((outcome.status(), outcome.subtype()), (201, Some("new")));
        assert_eq!(outcome.body().unwrap(), "created");
        assert_eq!(outcome.headers().next(), Some(("etag", Bytes::from_static(b"7"))));
    }

    #[test]
    fn the_old_form_is_read_as_hold_and_ends_when_it_did() {
        let record = record(&whole(OLD_FORMAT), key()).unwrap();
        assert_eq!(record.after_crash, AfterCrash::Hold);
        assert_eq!(record.expires_at(), Some(Timestamp::from_micros(8)));
        assert_eq!((record.fence, record.owner.as_str()), (Fence::new(1), "worker 7"));
    }

    #[test]
    fn the_size_of_an_outcome_is_known_from_its_beginning() {
        let plain = Outcome::new(201).unwrap().with_subtype("new").unwrap();
        let plain = plain.with_headers([("etag", "7")]).unwrap();
        for outcome in [plain.clone().without_body(), plain.with_body(vec![7; 100]).unwrap()] {
            let whole = super::outcome(&outcome);
            let body = outcome.body().map_or(0, Bytes::len);
            for end in 0..=whole.len() {
                match outcome_bytes(&whole[..end]) {
                    Ok(bytes) if end >= whole.len() - body => assert_eq!(bytes, whole.len(), "{end}"),
                    Ok(bytes) => assert!(bytes > Outcome::MAX_BODY_BYTES, "{end}"),
                    Err(_) => assert!(end < 10, "{end}"),
                }
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        for format in [FORMAT, OLD_FORMAT] {
            let whole = whole(format);
            for end in 0..whole.len() {
                assert!(record(&whole[..end], key()).is_err(), "{end} of {}", whole.len());
            }
        }
    }
}
