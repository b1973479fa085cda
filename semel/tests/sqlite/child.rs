//! This program as another process.
//!
//! A test whose environment says so is not a test but the body of that process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::stores::sqlite::Place;
use testkit::until::LONG;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;

/// The variable that marks a process as a child, with the file that it works on.
const CHILD: &str = "SEMEL_TEST_SQLITE_CHILD";

/// The file to work on, if this process is a child.
pub(crate) fn path() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Sends a line from a child to its parent.
pub(crate) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// The prefix of lines for the parent; all other lines are those of the test harness.
const MARK: &str = "child: ";

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    lines: UnboundedReceiver<String>,
}

/// Starts the test `child_…` of this program with the name `work`.
pub(crate) fn start(work: &str, place: &Place) -> Process {
    spawn(Command::new(std::env::current_exe().unwrap()), work, place.path())
}

/// Starts the child as an account other than root.
#[cfg(unix)]
pub(crate) fn start_unprivileged(work: &str, place: &Place) -> Process {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;

    let is_root = std::fs::metadata("/proc/self").map_or(true, |process| process.uid() == 0);
    if !is_root {
        return start(work, place);
    }
    // The folders above this program may not be accessible to other accounts.
    let copy = place.path().with_file_name("program");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(copy);
    const NOBODY: u32 = 65_534;
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    spawn(command, work, place.path())
}

/// Starts the child with files that cannot grow beyond this many blocks, of 512 or 1,024 bytes; the
/// signal for it is ignored, so that a write fails.
#[cfg(target_os = "linux")]
pub(crate) fn start_limited(work: &str, place: &Place, blocks: usize) -> Process {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -S -f {blocks}; trap '' XFSZ; exec \"$0\" \"$@\"");
    command.args(["-c", &limited]).arg(std::env::current_exe().unwrap());
    spawn(command, work, place.path())
}

fn spawn(mut command: Command, work: &str, path: &Path) -> Process {
    let mut child = command
        .args(["--exact", &format!("processes::child_{work}"), "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (told, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if let Some(line) = line.strip_prefix(MARK) {
                let _ = told.send(line.to_owned());
            }
        }
    });
    Process { child, lines }
}

impl Process {
    /// The next line of the child.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(LONG, self.lines.recv()).await.expect("it tells nothing");
        line.expect("it has ended without a word")
    }

    /// Lets its files grow again.
    #[cfg(target_os = "linux")]
    pub(crate) fn unlimit(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status().unwrap();
        assert!(status.success(), "prlimit of util-linux lifts the limit");
    }

    /// Kills the process without a warning, and returns all earlier lines.
    pub(crate) async fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut told = Vec::new();
        while let Some(line) = timeout(LONG, self.lines.recv()).await.expect("its output has no end") {
            told.push(line);
        }
        told
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
