//! What a run of `cargo xtask` says on its way, and where.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

/// Prints a line of progress. A closed standard error is no reason to stop.
pub fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "xtask: {message}");
}

/// The folder of the workspace. Not the one that xtask was compiled in: cargo takes a target folder that was
/// moved together with its workspace for up to date.
pub fn workspace() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let parent = package.and_then(|package| Some(package.parent()?.to_owned()));
    // Without cargo, which sets the variable, somebody runs the executable by hand.
    parent.or_else(|| env::current_dir().ok()).unwrap_or_default()
}
