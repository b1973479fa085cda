//! The reaper, which kills all processes when the harness ends for any reason.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;

use parking_lot::Mutex;

/// The shell that kills the remaining processes. It has a process group of its own, out of reach of
/// Ctrl-C.
static REAPER: LazyLock<Mutex<Option<(Child, ChildStdin)>>> = LazyLock::new(|| {
    let mut shell = Command::new("sh");
    shell.args(["-c", include_str!("reaper.sh"), "faults"]).stdin(Stdio::piped()).process_group(0);
    let started = shell.spawn().ok().and_then(|mut shell| {
        let pipe = shell.stdin.take()?;
        Some((shell, pipe))
    });
    Mutex::new(started)
});

pub(crate) fn begins(process: u32) {
    tell("begins", process);
}

pub(crate) fn ends(process: u32) {
    tell("ends", process);
}

fn tell(change: &str, process: u32) {
    if let Some((_, pipe)) = &mut *REAPER.lock() {
        // Without the shell, processes are ended only if the harness ends normally.
        let _gone = writeln!(pipe, "{change} {process}");
    }
}
