//! A small disk that can be filled completely.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages::{Account, NOBODY};
use crate::servers::guardian::Guardian;

/// The variable that leaves out tests on small disks if its value is `none`.
pub const SMALL_DISK: &str = "SEMEL_TEST_SMALL_DISK";

const NEEDS: &str = "a small disk needs root, who can mount one, or user namespaces for everybody (sysctl \
    kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)";

/// Returns `true` if the environment leaves out tests on small disks.
pub fn is_left_out() -> bool {
    std::env::var_os(SMALL_DISK).is_some_and(|value| value == "none")
}

/// A file system of its own, in memory, until this is dropped, or the process ends. It belongs to
/// the account that servers run under.
pub struct SmallDisk {
    guardian: Guardian,
}

impl SmallDisk {
    /// Mounts one of this size: as root, or as root of a user namespace of its own.
    ///
    /// # Errors
    /// If the system allows neither. The error names the missing right.
    pub fn new(bytes: u64) -> Result<Self> {
        let script = ["sh", "-c", include_str!("disk.sh"), "testkit"];
        let mut shell = if Account::detect()?.is_root() {
            let mut shell = Command::new(script[0]);
            shell.args(&script[1..]).env("OWNER", NOBODY.to_string());
            shell
        } else {
            let mut shell = Command::new("unshare");
            shell.args(["--user", "--map-root-user", "--mount"]).args(script);
            shell.env("OWNER", "0").env("SEEN_FROM_OUTSIDE", "yes");
            shell
        };
        shell.env("BYTES", bytes.to_string()).current_dir("/");
        Ok(Self { guardian: Guardian::start(&mut shell).context(NEEDS)? })
    }

    /// Mounts one of this size for a test, or returns `None` if the environment leaves such tests
    /// out by [`SMALL_DISK`]`=none`.
    ///
    /// # Panics
    /// If the system does not allow it: a test that cannot run does not pass.
    pub fn for_test(bytes: u64) -> Option<Self> {
        if is_left_out() {
            return None;
        }
        let disk = Self::new(bytes);
        Some(disk.unwrap_or_else(|error| {
            panic!("{error:#}; {SMALL_DISK}=none leaves out the tests that fill a disk")
        }))
    }

    /// The path at which it is mounted.
    pub fn path(&self) -> &Path {
        Path::new(&self.guardian.folder)
    }

    /// Takes all the remaining space, until [`free`](Self::free). Existing data can still be read,
    /// and overwritten.
    ///
    /// # Errors
    /// If a write fails for another reason than a full disk.
    pub fn fill(&self) -> Result<()> {
        let file = self.ballast();
        let failed = || format!("could not write {}", file.display());
        let mut ballast = File::options().create(true).append(true).open(&file).with_context(failed)?;
        loop {
            match ballast.write(&[0; 64 * 1024]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).with_context(failed),
            }
        }
    }

    /// Returns the space that [`fill`](Self::fill) took.
    ///
    /// # Errors
    /// If it was not taken.
    pub fn free(&self) -> Result<()> {
        let file = self.ballast();
        fs::remove_file(&file).with_context(|| format!("could not remove {}", file.display()))
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

#[cfg(test)]
mod facts {
    use std::os::unix::fs::MetadataExt;
    use std::process::Child;
    use std::process::Stdio;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn disk() -> Option<SmallDisk> {
        SmallDisk::for_test(MIB)
    }

    /// Returns `true` if a folder is on another file system than its parent.
    fn is_mounted(folder: &Path) -> bool {
        let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
        let own = device(folder);
        own.is_some() && own != device(folder.parent().unwrap())
    }

    #[test]
    fn full_disk_refuses_and_recovers() {
        let Some(disk) = disk() else { return };
        let file = disk.path().join("file");
        fs::write(&file, vec![1; MIB as usize / 2]).unwrap();
        assert!(fs::write(disk.path().join("big"), vec![1; MIB as usize]).is_err());
        fs::remove_file(disk.path().join("big")).unwrap();

        disk.fill().unwrap();
        let other = disk.path().join("other");
        let refused = fs::write(&other, [1]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&file).unwrap().len() as u64, MIB / 2);

        disk.free().unwrap();
        fs::write(&other, vec![1; MIB as usize / 2 - 4096]).unwrap();
    }

    #[test]
    fn servers_may_write_there() {
        let Some(disk) = disk() else { return };
        let mut touch = Account::detect().unwrap().command("touch");
        assert!(touch.arg(disk.path().join("file")).status().unwrap().success());
    }

    #[test]
    fn dropped_disk_is_unmounted_though_in_use() {
        let Some(disk) = disk() else { return };
        let path = disk.path().to_owned();
        let _in_use = File::create(path.join("file")).unwrap();
        assert!(is_mounted(&path));
        drop(disk);
        assert!(!is_mounted(&path) && !path.exists());
    }

    /// Not a test: the process that the next test kills.
    #[test]
    fn a_process_with_a_disk_that_is_killed() {
        if std::env::var_os("SEMEL_DISK_TO_LOSE").is_none() {
            return;
        }
        let disk = SmallDisk::new(MIB).unwrap();
        println!("\nmounted {}", disk.path().display());
        sleep(Duration::from_secs(60));
    }

    #[test]
    fn disk_of_a_killed_process_is_unmounted() {
        if disk().is_none() {
            return;
        }
        let mut child: Child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "servers::disk::facts::a_process_with_a_disk_that_is_killed", "--nocapture"])
            .env("SEMEL_DISK_TO_LOSE", "yes")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let path =
            lines.find_map(|line| Some(PathBuf::from(line.unwrap().strip_prefix("mounted ")?))).unwrap();
        assert!(is_mounted(&path));
        child.kill().unwrap();
        child.wait().unwrap();
        let began = Instant::now();
        while path.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "{} is still there", path.display());
            sleep(Duration::from_millis(10));
        }
        assert!(!is_mounted(&path));
    }
}
