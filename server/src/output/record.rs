//! A record for programs.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use semel::store::{Record, RecordState};
use semel::{Outcome, Timestamp};
use serde::{Serialize, Serializer};

use super::text::readable;

/// A record as JSON. The token is left out, because it allows writing as the owner.
#[derive(Serialize)]
pub(crate) struct RecordLine<'a> {
    key: &'a str,
    realm: &'a str,
    principal: &'a str,
    state: &'static str,
    operation: &'a str,
    resource: &'a str,
    fingerprint: String,
    fingerprint_version: u8,
    version: u64,
    fence: u64,
    attempt: u32,
    owner: &'a str,
    lease_until: Moment,
    heartbeat_at: Moment,
    created_at: Moment,
    updated_at: Moment,
    after_crash: &'static str,
    retention_seconds: f64,
    expires_at: Option<Moment>,
    expired: bool,
    finished_at: Option<Moment>,
    note: Option<NoteLine<'a>>,
    status: Option<u16>,
    subtype: Option<&'a str>,
    headers: Option<Vec<(&'a str, String)>>,
    body_bytes: Option<usize>,
    #[serde(flatten)]
    body: Option<Body<'a>>,
}

#[derive(Serialize)]
struct NoteLine<'a> {
    at: Moment,
    text: &'a str,
}

/// A body as text, or in hexadecimal digits if it is not text.
#[derive(Serialize)]
enum Body<'a> {
    #[serde(rename = "body")]
    Text(&'a str),
    #[serde(rename = "body_base64")]
    Bytes(String),
}

/// A moment in the format of RFC 3339.
struct Moment(Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'a> RecordLine<'a> {
    /// The record at this moment of the store's clock, without the body.
    pub(crate) fn new(record: &'a Record, now: Timestamp) -> Self {
        let (scope, intent, outcome) = (record.key.scope(), &record.intent, record.outcome());
        Self {
            key: record.key.value(),
            realm: scope.realm(),
            principal: scope.principal(),
            state: record.phase(now).as_str(),
            operation: intent.operation(),
            resource: intent.resource(),
            fingerprint: hex(intent.fingerprint().as_bytes()),
            fingerprint_version: intent.fingerprint().version(),
            version: record.version,
            fence: record.fence.get(),
            attempt: record.attempt,
            owner: record.owner.as_str(),
            lease_until: Moment(record.lease_until),
            heartbeat_at: Moment(record.heartbeat_at),
            created_at: Moment(record.created_at),
            updated_at: Moment(record.updated_at),
            after_crash: record.after_crash.as_str(),
            retention_seconds: record.retention.as_secs_f64(),
            expires_at: record.expires_at().map(Moment),
            expired: record.is_expired(now),
            finished_at: match record.state {
                RecordState::Done { finished_at, .. } => Some(Moment(finished_at)),
                _ => None,
            },
            note: record.note.as_ref().map(|note| NoteLine { at: Moment(note.at), text: &note.text }),
            status: outcome.map(Outcome::status),
            subtype: outcome.and_then(Outcome::subtype),
            headers: outcome.map(|outcome| {
                let text = |value: Bytes| String::from_utf8_lossy(&value).into_owned();
                outcome.headers().map(|(name, value)| (name, text(value))).collect()
            }),
            body_bytes: outcome.and_then(Outcome::body).map(|body| body.len()),
            body: None,
        }
    }

    /// The same with the body, if it was recorded.
    pub(crate) fn with_body(self, record: &'a Record) -> Self {
        let body = record.outcome().and_then(Outcome::body);
        let body = body.map(|bytes| match readable(bytes) {
            Some(text) => Body::Text(text),
            None => Body::Bytes(BASE64_STANDARD.encode(bytes)),
        });
        Self { body, ..self }
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
