//! The temporary folder of the demo.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use semel::store::Token;

/// A new private folder, removed with its content when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// # Errors
    /// If the folder cannot be created.
    pub(super) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("semel-demo-{}", Token::random()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("could not make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The folder may have been removed already, and an error here changes nothing.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
