//! The logs of a round.

use std::path::PathBuf;

use anyhow::Result;
use serde::de::DeserializeOwned;

use crate::event::{self, Effect, Request, Step};

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) requests: Vec<Request>,
    pub(crate) steps: Vec<Step>,
    pub(crate) effects: Vec<Effect>,
}

impl History {
    /// Reads the logs of all clients, handlers and ledgers.
    pub(crate) fn read(clients: &[PathBuf], handlers: &[PathBuf], ledgers: &[PathBuf]) -> Result<Self> {
        Ok(Self { requests: all(clients)?, steps: all(handlers)?, effects: all(ledgers)? })
    }
}

fn all<T: DeserializeOwned>(paths: &[PathBuf]) -> Result<Vec<T>> {
    let mut events = Vec::new();
    for path in paths {
        events.append(&mut event::read(path)?);
    }
    Ok(events)
}
