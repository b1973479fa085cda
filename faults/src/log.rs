//! A log that survives its process: each line is written to the system at once.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde::Serialize;

/// A log of events. Clones write to the same file.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<File>>);

impl Log {
    /// Opens a log for appending, and creates it if necessary.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("could not open {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    pub(crate) fn write(&self, event: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let mut file = self.0.lock();
        file.write_all(&line).context("could not write to a log")
    }
}
