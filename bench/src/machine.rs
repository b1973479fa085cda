//! The properties of the machine that matter for a figure.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

/// The load of the machine before the measurement: on a busy machine, the figures are those of the
/// remaining processors.
pub(crate) fn load_before() -> (&'static str, String) {
    let load = read_to_string("/proc/loadavg").ok().and_then(|load| Some(load.split(' ').next()?.to_owned()));
    let load = load.unwrap_or_else(|| "unknown".to_owned());
    ("load before the run", format!("{load} over the last minute, a build before it included"))
}

/// The parts of the machine, a line for each. Nothing identifies it.
pub(crate) fn machine(folder: &Path) -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|total| {
        let kib: f64 = total.trim_end_matches("kB").trim().parse().ok()?;
        Some(format!("{:.0} GiB", kib / f64::from(1 << 20)))
    });
    let kernel = read_to_string("/proc/sys/kernel/osrelease").ok();
    let rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("--version")
        .output()
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).replace("rustc ", ""));
    let unknown = || "unknown".to_owned();
    vec![
        ("processor", format!("{model}, {cores} cores; servers and load share them")),
        ("memory", memory.unwrap_or_else(unknown)),
        ("kernel", kernel.map_or_else(unknown, |kernel| format!("Linux {}", kernel.trim()))),
        ("file system", file_system(folder).unwrap_or_else(unknown)),
        ("rustc", rustc.map_or_else(unknown, |version| version.trim().to_owned())),
    ]
}

/// The first value of this name in a file of names and values.
fn field(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The kind of the file system that a folder is on: that of the longest mount point above it.
fn file_system(folder: &Path) -> Option<String> {
    let mounts = read_to_string("/proc/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(place, _)| folder.starts_with(place));
    above.max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind.to_owned())
}
