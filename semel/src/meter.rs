//! What is counted and timed.
//!
//! | name | labels | what |
//! | --- | --- | --- |
//! | `semel_claims_total` | store, answer | claims by what they came to |
//! | `semel_claim_seconds` | store | from the question to its answer, with all tries |
//! | `semel_settlements_total` | store, answer | ends of attempts: recorded, released, abandoned, superseded, pending |
//! | `semel_settle_seconds` | store | the same, in time |
//! | `semel_work_seconds` | store | how long the work of an attempt took |
//! | `semel_leases_lost_total` | store | leases that could no longer be counted upon while their work ran |
//! | `semel_http_requests_total` | answer | requests with a key: first, replayed, or the code of the refusal |

use std::time::Duration;

use metrics::{counter, histogram};

/// A claim was answered, or not.
pub(crate) fn claim(store: &'static str, answer: &'static str, took: Duration) {
    counter!("semel_claims_total", "store" => store, "answer" => answer).increment(1);
    histogram!("semel_claim_seconds", "store" => store).record(took);
}

/// An attempt was settled, or not yet.
pub(crate) fn settlement(store: &'static str, answer: &'static str, took: Duration) {
    counter!("semel_settlements_total", "store" => store, "answer" => answer).increment(1);
    histogram!("semel_settle_seconds", "store" => store).record(took);
}

/// The work of an attempt has ended.
pub(crate) fn work(store: &'static str, took: Duration) {
    histogram!("semel_work_seconds", "store" => store).record(took);
}

/// A lease was lost while its work ran.
pub(crate) fn lease_lost(store: &'static str) {
    counter!("semel_leases_lost_total", "store" => store).increment(1);
}

/// A request with a key was answered.
#[cfg(feature = "http")]
pub(crate) fn request(answer: &'static str) {
    counter!("semel_http_requests_total", "answer" => answer).increment(1);
}
