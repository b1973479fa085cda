//! The idempotency policy that a service publishes for its clients.

use ::http::Method;
use serde_json::{Value, json};

use crate::http::layer::IdempotencyLayer;
use crate::http::reply::outcome::IDEMPOTENCY_REPLAYED;
use crate::http::reply::problem::ProblemType;
use crate::words::key::Key;
use crate::words::terms::AfterCrash;

/// Returns `true` for a method on which a required key is enforced: the other methods are
/// idempotent by themselves.
pub(in crate::http) fn asks_for_key(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PATCH)
}

impl IdempotencyLayer {
    /// The policy that the draft of the header asks a service to publish: the methods on which a
    /// key counts, its syntax, its retention, and the form of errors. Mount it at
    /// `/.well-known/idempotency`.
    ///
    /// ```
    /// use semel::MemoryStore;
    /// use semel::http::IdempotencyLayer;
    ///
    /// let published = IdempotencyLayer::new(MemoryStore::new()).published();
    /// assert_eq!(published["header"], "idempotency-key");
    /// assert_eq!(published["retention_seconds"], 86_400);
    /// ```
    pub fn published(&self) -> Value {
        let (options, policy) = (&self.options, self.once.policy());
        let required = options.methods.iter().filter(|method| options.required && asks_for_key(method));
        let problems = ProblemType::ALL.map(|problem| problem.published());
        json!({
            "header": options.header.as_str(),
            "methods": options.methods.iter().map(Method::as_str).collect::<Vec<_>>(),
            "required_on": required.map(Method::as_str).collect::<Vec<_>>(),
            "key": {
                "syntax": if options.strict { "sf-string" } else { "sf-string or bare" },
                "min_length": 1,
                "max_length": Key::MAX_BYTES,
                "characters": "printable ASCII, no space at either end",
            },
            "fingerprint": options.fingerprint.describe(),
            "max_request_bytes": options.max_request_bytes,
            "retention_seconds": policy.terms().retention().as_secs(),
            "lease_seconds": policy.terms().lease().as_secs_f64(),
            "wait_seconds": policy.wait().as_secs_f64(),
            "after_crash": match policy.after_crash() {
                AfterCrash::Hold => "hold",
                AfterCrash::Retry => "retry",
                AfterCrash::Transactional => "transactional",
            },
            "replay_header": IDEMPOTENCY_REPLAYED.as_str(),
            "problem_page": options.renderer.page.as_deref(),
            "problems": problems,
        })
    }
}
