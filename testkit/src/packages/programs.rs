//! Programs, and a library, that only benchmarks, instruction counts and some tests need.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::packages::account::Account;
use crate::packages::debian;
use crate::progress::say;
use crate::servers::postgres::POSTGRES;

/// A file of a Debian package.
struct Wanted {
    name: &'static str,
    package: &'static str,
    /// The possible places under a root, best first.
    places: fn(&Path) -> Vec<PathBuf>,
}

const NGINX: Wanted = Wanted {
    name: "nginx",
    package: "nginx-light",
    places: |root| {
        ["usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin"]
            .map(|folder| root.join(folder).join("nginx"))
            .into()
    },
};

const FAKETIME: Wanted = Wanted {
    name: "libfaketime",
    package: "libfaketime",
    places: |root| {
        // Debian has a folder for the architecture, such as x86_64-linux-gnu; other distributions
        // do not.
        let mut folders = vec![root.join("usr/lib64"), root.join("usr/lib"), root.join("usr/local/lib")];
        let children = fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
        folders.extend(children.map(|child| child.path()));
        folders.iter().map(|folder| folder.join("faketime/libfaketimeMT.so.1")).collect()
    },
};

const VALGRIND: Wanted = Wanted {
    name: "valgrind",
    package: "valgrind",
    places: |root| ["usr/bin", "usr/local/bin"].map(|folder| root.join(folder).join("valgrind")).into(),
};

const PYTHON: Wanted = Wanted { name: "python3", package: "python3", places: |root| bins(root, "python3") };

const NODE: Wanted = Wanted { name: "node", package: "nodejs", places: |root| bins(root, "node") };

const CURL: Wanted = Wanted { name: "curl", package: "curl", places: |root| bins(root, "curl") };

fn bins(root: &Path, name: &str) -> Vec<PathBuf> {
    ["usr/bin", "usr/local/bin"].map(|folder| root.join(folder).join(name)).into()
}

/// A command that runs Python 3, which is found or fetched like nginx.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn python() -> Result<Command> {
    command(&PYTHON)
}

/// A command that runs Node, which is found or fetched like nginx.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn node() -> Result<Command> {
    command(&NODE)
}

/// A command that runs curl, which is found or fetched like nginx.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn curl() -> Result<Command> {
    command(&CURL)
}

/// Adds psql to the PATH of a command.
///
/// # Errors
/// If Postgres is neither installed nor can be.
pub fn with_psql(command: &mut Command) -> Result<()> {
    let found = crate::packages::find(&POSTGRES, &Account::detect()?)?;
    let path = env::var_os("PATH").unwrap_or_default();
    command.env("PATH", env::join_paths([found.folder].into_iter().chain(env::split_paths(&path)))?);
    if !found.libraries.is_empty() {
        command.env("LD_LIBRARY_PATH", found.libraries);
    }
    Ok(())
}

/// A program on PATH, or else as it is found; a fetched program has its libraries beside it.
fn command(wanted: &Wanted) -> Result<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|folder| folder.join(wanted.name));
    if let Some(program) = on_path.find(|file| file.is_file()) {
        return Ok(Command::new(program));
    }
    let program = find(wanted)?;
    let mut command = Command::new(&program);
    if let Some(root) = program.ancestors().nth(3).filter(|root| *root != Path::new("/")) {
        command.env("LD_LIBRARY_PATH", debian::libraries(root));
    }
    Ok(command)
}

/// The path of nginx; if it is missing, it is installed as root, or fetched as any other user.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn nginx() -> Result<PathBuf> {
    find(&NGINX)
}

/// The path of libfaketime, which moves the clock of a process that has it in LD_PRELOAD as
/// FAKETIME says; it is found or fetched like nginx.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn faketime() -> Result<PathBuf> {
    Ok(faketime_threads()?.with_file_name("libfaketime.so.1"))
}

/// The path of libfaketime for processes with several threads.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn faketime_threads() -> Result<PathBuf> {
    find(&FAKETIME)
}

/// A command that runs valgrind, in an environment of its own; it is found or fetched like nginx.
///
/// # Errors
/// If it is neither installed nor can be.
pub fn valgrind() -> Result<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|folder| folder.join(VALGRIND.name));
    let program = on_path.find(|file| file.is_file()).map_or_else(|| find(&VALGRIND), Ok)?;
    let mut command = Command::new(&program);
    command.env_clear();
    // A fetched valgrind would look for its tools in its regular folder.
    let tools = program.ancestors().nth(2).map(|root| root.join("libexec/valgrind"));
    command.envs(tools.filter(|folder| folder.is_dir()).map(|folder| ("VALGRIND_LIB", folder)));
    Ok(command)
}

fn find(wanted: &Wanted) -> Result<PathBuf> {
    let Wanted { name, package, .. } = wanted;
    let under = |root: &Path| (wanted.places)(root).into_iter().find(|file| file.is_file());
    let installed = || under(Path::new("/"));
    if let Some(file) = installed() {
        return Ok(file);
    }
    ensure!(debian::is_here(), "found no {name}: install it");
    if Account::detect()?.is_root() {
        say(format_args!("{name}: not found, installing the Debian package {package}"));
        debian::install(package)?;
        return installed().with_context(|| format!("found no {name}, though its package is installed"));
    }
    if let Some(file) = debian::fetched(package).iter().find_map(|root| under(root)) {
        return Ok(file);
    }
    say(format_args!("{name}: not found, fetching the Debian package {package}"));
    under(&debian::fetch(package)?).with_context(|| format!("found no {name} in its package"))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn faketime_moves_the_clock() {
        for library in [faketime().unwrap(), faketime_threads().unwrap()] {
            let mut date = Command::new("date");
            date.arg("+%Y")
                .env("LD_PRELOAD", &library)
                .env("FAKETIME", "@2001-02-03 04:05:06")
                .env("TZ", "UTC");
            let output = date.output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2001", "{}", library.display());
        }
    }
}
