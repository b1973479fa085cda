//! The three logs of a round, one JSON object a line. Their writers know nothing of each other.
//!
//! Times are microseconds of the machine's monotonic clock, which is the same for all processes and which nobody moves.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request as its client saw it, written when it had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Who sent it.
    pub(crate) caller: String,
    pub(crate) key: String,
    /// Which of the bodies of this key it carried. Intent 0 is the first that is ever sent.
    pub(crate) intent: u32,
    pub(crate) sent_at: u64,
    pub(crate) ended_at: u64,
    /// Sent after all faults were healed, to see what became of the key.
    #[serde(default)]
    pub(crate) after: bool,
    pub(crate) answer: Answer,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// No whole answer.
    Lost,
    /// The answer of a handler, first or replayed.
    Outcome {
        status: u16,
        replayed: bool,
        /// Of the recorded headers and the body, byte for byte.
        digest: String,
        body: Receipt,
    },
    /// A refusal of semel's, or an error on the way, by its status and, for a problem, its code.
    Refused { status: u16, code: String },
}

/// What a handler writes into its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) intent: u32,
    /// Random, for each time that a handler starts.
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
    /// It began, and has done nothing yet.
    Start,
    /// It says that nothing happened, and that the key is to be released.
    Release,
    /// It is about to answer with its receipt.
    Answer,
}

/// An effect, as the ledger holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) run: String,
}

/// Reads a log. A process that was killed may have left half a line at the end, which is left out.
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
