//! Debian packages, as a source of servers that are not installed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::progress::workspace;

/// Returns `true` if this system has packages of this kind.
pub(crate) fn is_here() -> bool {
    Command::new("apt-get").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Installs a package, which requires root.
pub(crate) fn install(package: &str) -> Result<()> {
    script(include_str!("install.sh"), &[package.as_ref()])
        .with_context(|| format!("could not install the Debian package {package}"))
}

/// Unpacks a package and its dependencies into a folder of this project, and returns that folder.
pub(crate) fn fetch(package: &str) -> Result<PathBuf> {
    let caches = caches();
    let cache = caches.iter().find(|cache| is_writable(cache));
    let cache = cache.with_context(|| format!("could not write to any of {caches:?}"))?;
    let root = cache.join(package);
    // An existing folder was found not to run.
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("could not remove {}", root.display()))?;
    }
    script(include_str!("fetch.sh"), &[root.as_ref(), package.as_ref()])
        .with_context(|| format!("could not fetch the Debian package {package} into {}", root.display()))?;
    Ok(root)
}

/// The folders that may hold an unpacked package from an earlier run.
pub(crate) fn fetched(package: &str) -> Vec<PathBuf> {
    caches().into_iter().map(|cache| cache.join(package)).filter(|root| root.is_dir()).collect()
}

/// The shared libraries of the packages unpacked in a folder, in the form of LD_LIBRARY_PATH.
pub(crate) fn libraries(root: &Path) -> OsString {
    let mut folders = Vec::new();
    for parent in [root.join("usr/lib"), root.join("lib")] {
        // Libraries are in a folder for the architecture, such as x86_64-linux-gnu.
        let children = fs::read_dir(&parent).into_iter().flatten().flatten();
        folders.extend(children.filter(|child| child.file_name().to_string_lossy().contains("-linux-")));
    }
    // A cache path that contains a colon cannot be expressed here; the server then fails to run,
    // which is reported.
    env::join_paths(folders.iter().map(|folder| folder.path())).unwrap_or_default()
}

/// The folders for fetched packages: with the user's caches, or in the target folder for a user
/// without a home.
fn caches() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let user = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let target = set("CARGO_TARGET_DIR").unwrap_or_else(|| workspace().join("target"));
    let caches = user.into_iter().chain([target]);
    caches.map(|cache| cache.join("semel/debian")).collect()
}

/// Returns `true` if files can be created in a folder, which is also created.
fn is_writable(folder: &Path) -> bool {
    let file = folder.join(format!(".probe-{}", std::process::id()));
    fs::create_dir_all(folder).and_then(|()| File::create(&file)).and_then(|_| fs::remove_file(&file)).is_ok()
}

/// Runs a script in a shell of its own: it sets traps, so that an interrupted run tidies up.
fn script(text: &str, args: &[&OsStr]) -> Result<()> {
    // The word after the script is its name in the shell's messages.
    let status = Command::new("sh").args(["-c", text, "testkit"]).args(args).status();
    let status = status.context("could not run `sh`")?;
    ensure!(status.success(), "apt-get, whose messages are above, did not succeed");
    Ok(())
}
