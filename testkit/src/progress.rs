//! The progress lines of a run of `cargo xtask`, and the folder of the workspace.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

/// Prints a line of progress. A closed standard error is no reason to stop.
pub fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "xtask: {message}");
}

/// The folder of the workspace. The folder in which xtask was compiled may be another: cargo takes
/// a target folder that was moved together with its workspace for up to date.
pub fn workspace() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let parent = package.and_then(|package| Some(package.parent()?.to_owned()));
    // The executable may be run by hand, without cargo, which sets the variable.
    parent.or_else(|| env::current_dir().ok()).unwrap_or_default()
}
