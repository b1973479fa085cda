//! The search for a server's executables.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::packages::account::Account;
use crate::packages::debian;
use crate::progress::say;

/// The properties of one kind of server.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The variable with the URL of a running server, for this crate and for the tests.
    pub(crate) variable: &'static str,
    /// The Debian package.
    pub(crate) package: &'static str,
    /// The executables that have to be in one folder, the server first.
    pub(crate) programs: &'static [&'static str],
    /// The folders under a root that packages use besides those on PATH, best first.
    pub(crate) folders: fn(&Path) -> Vec<PathBuf>,
    /// Reads the version from what the server answers to `--version`.
    pub(crate) version: fn(&str) -> Option<&str>,
    /// The URL of a server started in a folder.
    pub(crate) url: fn(&str) -> String,
}

/// A server that runs on this machine.
pub(crate) struct Found {
    version: String,
    /// The folder of its executables.
    pub(crate) folder: PathBuf,
    /// The folders of shared libraries in addition to the system's, as in LD_LIBRARY_PATH.
    pub(crate) libraries: OsString,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.version, self.folder.display())
    }
}

/// Finds a server that is installed or was fetched before; otherwise installs it as root, or
/// fetches it as any other user.
pub(crate) fn find(kind: &Kind, account: &Account) -> Result<Found> {
    if let Some(found) = installed(kind, account).or_else(|| cached(kind, account)) {
        return Ok(found);
    }

    let Kind { name, package, .. } = kind;
    let advice = format!("found no {name}: install it, or set {} to the URL of one that runs", kind.variable);
    ensure!(debian::is_here(), advice);
    let found = if account.is_root() {
        say(format_args!("{name}: not found, installing the Debian package {package}"));
        debian::install(package).context(advice.clone())?;
        installed(kind, account)
    } else {
        say(format_args!("{name}: not found, fetching the Debian package {package}"));
        let root = debian::fetch(package).context(advice.clone())?;
        under(kind, account, &root)
    };
    found.context(advice)
}

/// The server among the executables of this system.
fn installed(kind: &Kind, account: &Account) -> Option<Found> {
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::split_paths(&path).filter(|folder| folder.is_absolute());
    let usual = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"].map(PathBuf::from);
    let mut folders = path.chain((kind.folders)(Path::new("/"))).chain(usual);
    folders.find_map(|folder| probe(kind, account, folder, OsString::new()))
}

/// The server that an earlier run fetched. Root does not use it, because root can install the
/// server, and root's servers run as `nobody`, who has no access to a home.
fn cached(kind: &Kind, account: &Account) -> Option<Found> {
    if account.is_root() {
        return None;
    }
    debian::fetched(kind.package).iter().find_map(|root| under(kind, account, root))
}

/// The server in a folder of unpacked packages.
fn under(kind: &Kind, account: &Account, root: &Path) -> Option<Found> {
    let libraries = debian::libraries(root);
    let mut folders = (kind.folders)(root).into_iter().chain([root.join("usr/bin")]);
    folders.find_map(|folder| probe(kind, account, folder, libraries.clone()))
}

/// Asks the server in a folder for its version, under the account that will run it: a server that
/// this account cannot run counts as missing.
fn probe(kind: &Kind, account: &Account, folder: PathBuf, libraries: OsString) -> Option<Found> {
    if !kind.programs.iter().all(|program| folder.join(program).is_file()) {
        return None;
    }
    let mut ask = account.command(folder.join(kind.programs[0]));
    let output = ask.arg("--version").env("LD_LIBRARY_PATH", &libraries).output().ok()?;
    let answer = String::from_utf8_lossy(&output.stdout);
    let version = (kind.version)(&answer).filter(|_| output.status.success())?.to_owned();
    Some(Found { version, folder, libraries })
}

/// The folders in `parent` called `prefix` and a version, the newest first: 15 comes before 9.6.
pub(crate) fn newest_first(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut versions: Vec<(Vec<u32>, String)> = names
        .filter_map(|name| {
            let numbers: Result<_, _> = name.strip_prefix(prefix)?.split('.').map(str::parse).collect();
            Some((numbers.ok()?, name))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, name)| parent.join(name)).collect()
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let parent = env::temp_dir().join(format!("semel-versions-{}", std::process::id()));
        for name in ["9.6", "15", "9.10", "current", "lib15"] {
            fs::create_dir_all(parent.join(name)).expect("could not make a folder");
        }
        let found = newest_first(&parent, "");
        fs::remove_dir_all(&parent).expect("could not remove a folder");
        assert_eq!(found, ["15", "9.10", "9.6"].map(|name| parent.join(name)));
    }
}
