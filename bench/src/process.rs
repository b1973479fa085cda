//! Processor time and memory of processes, as the system reports them.

use anyhow::{Context, Result};

/// The unit in which Linux reports the processor time of a process.
const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of a process, behind its name.
struct Stat(Vec<String>);

impl Stat {
    fn of(process: &str) -> Result<Self> {
        let stat = file(process, "stat")?;
        // The name may contain spaces; it ends with the last parenthesis.
        let (_, fields) = stat.rsplit_once(')').context("/proc has another form")?;
        Ok(Self(fields.split_whitespace().map(str::to_owned).collect()))
    }

    fn number(&self, at: usize) -> Result<f64> {
        self.0.get(at).and_then(|field| field.parse().ok()).context("/proc has another form")
    }

    fn parent(&self) -> Result<f64> {
        self.number(1)
    }

    fn seconds(&self) -> Result<f64> {
        Ok((self.number(11)? + self.number(12)?) / TICKS_PER_SECOND)
    }

    /// The processor time of children that have ended.
    fn seconds_of_children(&self) -> Result<f64> {
        Ok((self.number(13)? + self.number(14)?) / TICKS_PER_SECOND)
    }
}

/// The processor time that a process has used so far; `self` is this one.
pub(crate) fn processor_seconds(process: &str) -> Result<f64> {
    Stat::of(process)?.seconds()
}

/// The processor time that a server of many processes has used so far, found from one of them.
pub(crate) fn family_seconds(member: i32) -> Result<f64> {
    let parent = Stat::of(&member.to_string())?.parent()?;
    let head = Stat::of(&parent.to_string())?;
    let mut seconds = head.seconds()? + head.seconds_of_children()?;
    for entry in std::fs::read_dir("/proc").context("could not read /proc")?.flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else { continue };
        // The process may have ended in between.
        if let Ok(stat) = Stat::of(process)
            && stat.parent()? == parent
        {
            seconds += stat.seconds()?;
        }
    }
    Ok(seconds)
}

/// The memory that a process has in use now, in MiB.
pub(crate) fn memory_mib(process: &str) -> Result<f64> {
    let status = file(process, "status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc has another form")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("/proc has another form")?;
    Ok(kib / 1024.0)
}

fn file(process: &str, name: &str) -> Result<String> {
    std::fs::read_to_string(format!("/proc/{process}/{name}")).context("could not read /proc")
}
