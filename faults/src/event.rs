//! The three logs of a round, with one JSON object per line. Their writers are independent of each
//! other.
//!
//! Times are microseconds of the machine's monotonic clock, which all processes share and which is
//! never set.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request as its client saw it, logged when it had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The caller that sent it.
    pub(crate) caller: String,
    pub(crate) key: String,
    /// The number of the body, among the bodies of this key. Intent 0 is the first one sent.
    pub(crate) intent: u32,
    pub(crate) sent_at: u64,
    pub(crate) ended_at: u64,
    /// Set if the request was sent after all faults were healed, to find the final state of the
    /// key.
    #[serde(default)]
    pub(crate) after: bool,
    pub(crate) answer: Answer,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// No complete answer.
    Lost,
    /// The answer of a handler, first or replayed.
    Outcome {
        status: u16,
        replayed: bool,
        /// The digest of the recorded headers and the body.
        digest: String,
        body: Receipt,
    },
    /// A refusal by semel or an error on the way, with its status and, for a problem, its code.
    Refused { status: u16, code: String },
}

/// The body of a handler's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) intent: u32,
    /// A random name for each start of a handler.
    pub(crate) run: String,
    pub(crate) fence: u64,
}

/// A step of a handler, as it logged it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) at: u64,
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) intent: u32,
    pub(crate) run: String,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// The handler started, and has done nothing yet.
    Start,
    /// The handler says that nothing happened, and that the key is to be released.
    Release,
    /// The handler is about to answer with its receipt.
    Answer,
}

/// An effect in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) run: String,
}

/// Reads a log. Half a line at the end, left by a killed process, is ignored.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let file = File::open(path).with_context(|| format!("could not open {}", path.display()))?;
    let mut file = BufReader::new(file);
    let mut events = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        file.read_line(&mut line).with_context(|| format!("could not read {}", path.display()))?;
        if !line.ends_with('\n') {
            return Ok(events);
        }
        let event = serde_json::from_str(&line)
            .with_context(|| format!("{}: line {} is no event: {line}", path.display(), events.len() + 1))?;
        events.push(event);
    }
}
