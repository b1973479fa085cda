//! The account that servers run under.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The user and group id of the account `nobody`: Postgres refuses to run as root.
pub(crate) const NOBODY: u32 = 65534;

/// The account for servers: the present one, or `nobody` instead of root.
pub(crate) struct Account {
    is_root: bool,
}

impl Account {
    pub(crate) fn detect() -> Result<Self> {
        let output = Command::new("id").arg("-u").output().context("could not run `id -u`")?;
        ensure!(output.status.success(), "`id -u` ended with {}", output.status);
        Ok(Self { is_root: output.stdout.trim_ascii() == b"0" })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.is_root
    }

    /// A command under this account, in a neutral environment: `nobody` may not enter the present
    /// folder, and variables such as PGPORT would change a server.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        command.current_dir("/").stdin(Stdio::null());
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}
