//! The operations that need no store.

use std::hint::black_box;

use anyhow::{Result, ensure};
use http::Request;
use semel::Outcome;
use semel::http::{RequestFingerprint, parse_key};
use semel::protocol::decide::Decision;
use semel::store::Claim;

use crate::store;

/// As clients send it: a UUID in quotation marks.
pub(crate) fn parse_quoted(times: usize) -> Result<()> {
    parse(br#""8e03978e-40d5-43dd-bc93-6894a57f9324""#, times)
}

/// The same without them.
pub(crate) fn parse_bare(times: usize) -> Result<()> {
    parse(b"8e03978e-40d5-43dd-bc93-6894a57f9324", times)
}

fn parse(value: &[u8], times: usize) -> Result<()> {
    for _ in 0..times {
        ensure!(parse_key(black_box(value), false).is_ok(), "not a key");
    }
    Ok(())
}

pub(crate) fn fingerprint(times: usize) -> Result<()> {
    let request = Request::post("/charges?dry=no").header("content-type", "application/json").body(())?;
    let (parts, ()) = request.into_parts();
    let (exact, body) = (RequestFingerprint::raw(), [b'x'; 1024]);
    for _ in 0..times {
        black_box(exact.of(black_box(&parts), black_box("/charges?dry=no"), black_box(&body)));
    }
    Ok(())
}

pub(crate) fn decide(times: usize) -> Result<()> {
    let (found, repeat, now) = store::done()?;
    for _ in 0..times {
        let decision = semel::protocol::decide::claim(black_box(&found), black_box(&repeat), now);
        ensure!(matches!(decision, Decision::Answer(Claim::Done(_))), "a repeat was not replayed");
    }
    Ok(())
}

pub(crate) fn write_headers(times: usize) -> Result<()> {
    let plain = Outcome::new(201)?;
    for _ in 0..times {
        black_box(plain.clone().with_headers(black_box(HEADERS))?);
    }
    Ok(())
}

pub(crate) fn read_headers(times: usize) -> Result<()> {
    let outcome = Outcome::new(201)?.with_headers(HEADERS)?;
    for _ in 0..times {
        ensure!(black_box(&outcome).headers().map(black_box).count() == 4, "not four headers");
    }
    Ok(())
}

/// The headers that an answer of a service often has.
const HEADERS: [(&str, &str); 4] = [
    ("content-type", "application/json"),
    ("location", "/charges/ch_3PqJd2eZvKYlo2C"),
    ("etag", "\"33a64df551425fcc55e4d42a148795d9f25f89d4\""),
    ("vary", "accept-encoding"),
];
