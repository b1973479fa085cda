//! A copy of the workspace with mistakes on purpose, which the fault harness has to find.
//!
//! The mistakes are patches in `faults/mistakes`, so that the source of the library and the binary
//! has none. All of them are applied to one copy, which is built once; a process of it makes the
//! mistake that the variable `SEMEL_MISTAKE` names.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::progress::workspace;

/// The folder of the builds, which the copy shares with the workspace.
pub(super) fn target() -> PathBuf {
    let chosen = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace().join(chosen.unwrap_or_else(|| "target".into()))
}

/// Makes the copy of a workspace, and returns its folder. Files that have not changed since the
/// last copy keep their time, so that cargo does not build them again.
pub(super) fn make(source: &Path) -> Result<PathBuf> {
    let folder = target().join("faults");
    let (copy, fresh) = (folder.join("workspace"), folder.join("workspace.new"));
    remove(&fresh)?;
    duplicate(source, &fresh)?;
    apply(&source.join("faults/mistakes"), &fresh)?;
    mirror(&fresh, &copy)?;
    remove(&fresh)?;
    Ok(copy)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The names in a folder, in order, without builds and hidden folders.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let name = entry?.file_name();
        let name = name.into_string().map_err(|name| anyhow::anyhow!("{name:?} is not a text"))?;
        if name != "target" && (!name.starts_with('.') || name == ".cargo") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn duplicate(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not make {}", to.display()))?;
    for name in names(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            duplicate(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("could not copy {}", from.display()))?;
        }
    }
    Ok(())
}

/// Applies the patches of a folder, in the order of their names.
fn apply(patches: &Path, to: &Path) -> Result<()> {
    for name in names(patches)? {
        // Without the ceiling, git would find the repository around the copy, and skip all files.
        let applied = Command::new("git")
            .arg("apply")
            .arg(patches.join(&name))
            .current_dir(to)
            .env("GIT_CEILING_DIRECTORIES", to.parent().unwrap_or(to))
            .env_remove("GIT_DIR")
            .output()
            .context("could not run git, which applies the mistakes")?;
        ensure!(
            applied.status.success(),
            "the mistake {name} does not fit the source any more: {}",
            String::from_utf8_lossy(&applied.stderr).trim()
        );
    }
    Ok(())
}

/// Makes one folder equal to another, and leaves files alone that are equal already.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not make {}", to.display()))?;
    let wanted = names(from)?;
    for name in names(to)?.into_iter().filter(|name| !wanted.contains(name)) {
        let left = to.join(name);
        if left.is_dir() { remove(&left)? } else { fs::remove_file(&left)? }
    }
    for name in wanted {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            mirror(&from, &to)?;
        } else if fs::read(&to).ok() != Some(fs::read(&from)?) {
            fs::copy(&from, &to).with_context(|| format!("could not copy {}", from.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_fit_the_source() {
        let copy = tempfile::tempdir().unwrap();
        let source = workspace();
        duplicate(&source.join("semel"), &copy.path().join("semel")).unwrap();
        apply(&source.join("faults/mistakes"), copy.path()).unwrap();
        for name in names(&source.join("faults/mistakes")).unwrap() {
            let mistake = name.trim_end_matches(".patch");
            let made = if mistake == "switch" {
                "SEMEL_MISTAKE".to_owned()
            } else {
                format!("makes(\"{mistake}\")")
            };
            assert!(contains(&copy.path().join("semel/src"), &made), "{name}");
        }
        assert!(!contains(&source.join("semel/src"), "fault::makes"), "the source has no mistakes");
    }

    fn contains(folder: &Path, text: &str) -> bool {
        names(folder).unwrap().iter().map(|name| folder.join(name)).any(|path| match path.is_dir() {
            true => contains(&path, text),
            false => fs::read_to_string(&path).is_ok_and(|file| file.contains(text)),
        })
    }

    #[test]
    fn unchanged_files_keep_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("in")).unwrap();
        fs::write(from.join("in/same"), "same").unwrap();
        fs::write(from.join("other"), "old").unwrap();
        mirror(&from, &to).unwrap();
        let written = || fs::metadata(to.join("in/same")).unwrap().modified().unwrap();
        let before = written();
        fs::write(from.join("other"), "new").unwrap();
        fs::write(to.join("left"), "").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(written(), before);
        assert_eq!(fs::read_to_string(to.join("other")).unwrap(), "new");
        assert!(!to.join("left").exists());
    }
}
