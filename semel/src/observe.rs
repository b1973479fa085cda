//! The metrics of the engine, the layer and the hot stores.
//!
//! The docs of the crate list the names, so change them together.

use std::time::Duration;

use metrics::{Key, Level, Metadata, counter, with_recorder};

/// The metadata that a recorder receives with every metric.
static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The possible answers to a claim.
const CLAIMS: [&str; 8] =
    ["granted", "done", "running", "held", "mismatch", "late", "unavailable", "refused"];
/// The possible results of settling an attempt.
const SETTLEMENTS: [&str; 7] =
    ["completed", "released", "abandoned", "held", "superseded", "pending", "refused"];

/// The metrics of one engine. Their keys are built once, because building a key costs more than
/// counting.
pub(crate) struct Meter {
    claims: Answers<8>,
    claim_seconds: Key,
    settlements: Answers<7>,
    settle_seconds: Key,
    work_seconds: Key,
}

/// A counter with one key for each answer.
struct Answers<const N: usize>([(&'static str, Key); N]);

impl<const N: usize> Answers<N> {
    fn of(name: &'static str, store: &'static str, answers: [&'static str; N]) -> Self {
        let key = |answer| Key::from_parts(name, &[("store", store), ("answer", answer)]);
        Self(answers.map(|answer| (answer, key(answer))))
    }

    fn count(&self, answer: &str) {
        if let Some((_, key)) = self.0.iter().find(|(word, _)| *word == answer) {
            with_recorder(|recorder| recorder.register_counter(key, &METADATA).increment(1));
        }
    }
}

fn time(key: &Key, took: Duration) {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA).record(took));
}

impl Meter {
    /// The metrics of an engine over the store of this name.
    pub(crate) fn new(store: &'static str) -> Self {
        let key = |name| Key::from_parts(name, &[("store", store)]);
        Self {
            claims: Answers::of("semel_claims_total", store, CLAIMS),
            claim_seconds: key("semel_claim_seconds"),
            settlements: Answers::of("semel_settlements_total", store, SETTLEMENTS),
            settle_seconds: key("semel_settle_seconds"),
            work_seconds: key("semel_work_seconds"),
        }
    }

    /// Counts a claim by its answer, and records its duration.
    pub(crate) fn claim(&self, answer: &'static str, took: Duration) {
        self.claims.count(answer);
        time(&self.claim_seconds, took);
    }

    /// Counts a settlement by its result, and records the duration of the write.
    pub(crate) fn settlement(&self, answer: &'static str, took: Duration) {
        self.settlements.count(answer);
        time(&self.settle_seconds, took);
    }

    /// Records the duration of the work of an attempt.
    pub(crate) fn work(&self, took: Duration) {
        time(&self.work_seconds, took);
    }
}

/// The possible answers of a hot store.
const RECALLS: [&str; 4] = ["hit", "miss", "failed", "aside"];

/// The metrics of one hot store.
pub(crate) struct HotMeter(Answers<4>);

impl HotMeter {
    /// The metrics of the hot store of this name.
    pub(crate) fn new(store: &'static str) -> Self {
        Self(Answers::of("semel_hot_questions_total", store, RECALLS))
    }

    /// Counts a claim by the answer of the hot store; `aside` means that it was not asked.
    pub(crate) fn recall(&self, answer: &'static str) {
        self.0.count(answer);
    }
}

/// Counts a lease that was lost while its work ran.
pub(crate) fn lease_lost(store: &'static str) {
    counter!("semel_leases_lost_total", "store" => store).increment(1);
}

/// Counts an HTTP request with a key by its answer.
#[cfg(feature = "http")]
pub(crate) fn request(answer: &'static str) {
    match answer {
        "first" => counter!("semel_http_requests_total", "answer" => "first").increment(1),
        "replayed" => counter!("semel_http_requests_total", "answer" => "replayed").increment(1),
        refusal => counter!("semel_http_requests_total", "answer" => refusal).increment(1),
    }
}
