//! The store that a command works on.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::config::{self, StoreSettings};
use crate::output::quoted;
use crate::stores::{Opened, redacted};

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    place: StoreSettings,

    /// A file with the settings of the gateway, for its store and its cache, where neither a flag
    /// nor a variable names them
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl StoreArgs {
    /// Opens an existing store.
    ///
    /// # Errors
    /// If the store cannot be reached, or is a file that does not exist: a mistyped name should not
    /// create a file.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let place = self.place()?;
        if let Some(file) = place.file().filter(|file| !file.exists()) {
            bail!(
                "there is no file {}; `semel migrate up` makes it, and so does `semel gateway`",
                file.display()
            );
        }
        Opened::open(&place).await
    }

    /// Opens a store, and creates its file if there is none.
    pub(crate) async fn open_or_make(&self) -> Result<Opened> {
        Opened::open(&self.place()?).await
    }

    /// The URLs of the store and its cache, from flags, variables and the file.
    pub(crate) fn place(&self) -> Result<StoreSettings> {
        Ok(self.place.clone().or(config::read_file(self.config.as_deref())?.place))
    }

    /// The flags by which another command finds the same store, each with a space in front. Logins
    /// are left out.
    pub(crate) fn flags(&self) -> String {
        let flag = |flag: &str, url: &Option<String>| match url.as_deref() {
            None => String::new(),
            Some(url) if redacted(url) == url => format!(" --{flag} {}", quoted(url)),
            Some(_) => format!(" --{flag} \"$SEMEL_{}\"", flag.to_uppercase()),
        };
        let urls = flag("store", &self.place.store) + &flag("cache", &self.place.cache);
        match &self.config {
            Some(file) => format!("{urls} --config {}", quoted(&file.to_string_lossy())),
            None => urls,
        }
    }
}
