//! A small disk that can be filled completely.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::packages::{Account, NOBODY};
use crate::servers::guardian::Guardian;

/// A file system of its own, in memory, until this is dropped, or the process ends. It belongs to
/// the account that servers run under.
pub struct SmallDisk {
    guardian: Guardian,
}

impl SmallDisk {
    /// Mounts one of this size.
    ///
    /// # Errors
    /// If this is not run as root, or the system does not allow root to mount either. The error
    /// names the missing right.
    pub fn new(bytes: u64) -> Result<Self> {
        const NEEDS: &str = "a small disk needs root, who can mount one";
        ensure!(Account::detect()?.is_root(), NEEDS);
        let mut shell = Command::new("sh");
        shell.args(["-c", include_str!("disk.sh"), "testkit"]);
        shell.env("BYTES", bytes.to_string()).env("OWNER", NOBODY.to_string());
        Ok(Self { guardian: Guardian::start(shell.current_dir("/")).context(NEEDS)? })
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
    use std::process::Child;
    use std::process::Stdio;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// A disk, or `None` where there can be none; then the error has to give the reason.
    fn disk() -> Option<SmallDisk> {
        match SmallDisk::new(MIB) {
            Ok(disk) => Some(disk),
            Err(error) => {
                assert!(!may_mount(), "{error:#}");
                assert!(format!("{error:#}").contains("needs root"), "{error:#}");
                None
            }
        }
    }

    /// Returns `true` if this process has the right to mount, which is number 21.
    fn may_mount() -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(rights.trim(), 16).unwrap() & (1 << 21) != 0
    }

    fn is_mounted(folder: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.split_whitespace().any(|word| Path::new(word) == folder)
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
