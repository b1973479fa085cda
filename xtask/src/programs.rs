//! Programs that only benchmarks need.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::account::Account;
use crate::debian;
use crate::step::say;

/// Where nginx is; it is installed as root, or fetched as anybody else, if it is not here.
///
/// # Errors
/// If there is none to be had.
pub fn nginx() -> Result<PathBuf> {
    const PACKAGE: &str = "nginx-light";
    let usual = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .map(|folder| PathBuf::from(folder).join("nginx"));
    let installed = || usual.iter().find(|program| program.is_file()).cloned();
    if let Some(program) = installed() {
        return Ok(program);
    }
    ensure!(debian::is_here(), "found no nginx: install it");
    if Account::detect()?.is_root() {
        say(format_args!("nginx: not found, installing the Debian package {PACKAGE}"));
        debian::install(PACKAGE)?;
        return installed().context("found no nginx, though its package is installed");
    }
    let fetched = |root: PathBuf| Some(root.join("usr/sbin/nginx")).filter(|program| program.is_file());
    if let Some(program) = debian::fetched(PACKAGE).into_iter().find_map(fetched) {
        return Ok(program);
    }
    say(format_args!("nginx: not found, fetching the Debian package {PACKAGE}"));
    fetched(debian::fetch(PACKAGE)?).context("found no nginx in its package")
}
