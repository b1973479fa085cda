//! The outcome of a record, from the columns of a database.

use bytes::Bytes;

use crate::words::error::StoreError;
use crate::words::outcome::{Headers, Outcome, OutcomeError};

/// The outcome with these stored parts.
///
/// # Errors
/// Corrupt if one of them breaks a rule. That includes an informational status, which an older
/// version could store: no repeat could be answered with it, and its work may have run.
pub(crate) fn outcome(
    status: u16,
    subtype: Option<&str>,
    headers: &[u8],
    body: Option<&[u8]>,
) -> Result<Outcome, StoreError> {
    let invalid = |part: &str, error: OutcomeError| {
        StoreError::corrupt(format!("the stored {part} breaks a rule")).with_source(error)
    };
    let mut outcome = Outcome::new(status).map_err(|e| invalid("status", e))?;
    if let Some(subtype) = subtype {
        outcome = outcome.with_subtype(subtype).map_err(|e| invalid("subtype", e))?;
    }
    // Headers and body share one allocation.
    let mut bytes = Bytes::from([headers, body.unwrap_or_default()].concat());
    outcome = outcome.with_stored_headers(Headers::from_stored(bytes.split_to(headers.len()))?);
    match body {
        Some(_) => outcome.with_body(bytes).map_err(|e| invalid("body", e)),
        None => Ok(outcome.without_body()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_the_same_after_it_was_stored() {
        let plain = Outcome::new(201).unwrap().with_headers([("etag", "7")]).unwrap();
        let whole = plain.clone().with_subtype("new").unwrap().with_body("created").unwrap();
        for given in [plain.clone(), plain.without_body(), whole] {
            let body = given.body().map(|body| &**body);
            let stored = outcome(given.status(), given.subtype(), given.stored_headers(), body);
            assert_eq!(stored.unwrap(), given);
        }
    }

    #[test]
    fn a_stored_status_that_is_no_answer_is_corrupt() {
        for status in [99, 101, 199, 1_000] {
            let refused = outcome(status, None, &[], None).unwrap_err();
            assert!(!refused.is_transient(), "{status}: {refused}");
        }
    }
}
