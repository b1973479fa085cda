//! The instructions that the hot paths in memory take, counted and compared with the recorded ones.
//!
//! - `table`: the table of recorded figures.

mod table;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use testkit::programs::valgrind;
use testkit::progress::{say, workspace};

use crate::step::{Steps, cargo};
use table::{Count, Table, Verdict};

const PAGE: &str = "docs/instructions.md";

const BUILD: [&str; 4] = ["build", "--release", "--package", "counts"];

/// The numbers of operations in the two runs whose difference counts.
const TIMES: [u64; 2] = [1_000, 3_000];

/// Counts every operation. Then it records the result, or fails if an operation takes clearly more
/// than recorded.
pub fn all(steps: &mut Steps, record: bool) -> Result<()> {
    steps.run("build", &mut cargo(BUILD))?;
    let program = executable()?;
    let counts = steps.time("count", || count_all(&program))?;
    let page = workspace().join(PAGE);
    let text = fs::read_to_string(&page).with_context(|| format!("could not read {PAGE}"))?;
    if record {
        let table = Table { made_with: made_with()?, counts };
        let text = table.written_into(&text).with_context(|| format!("could not record in {PAGE}"))?;
        fs::write(&page, text).with_context(|| format!("could not write {PAGE}"))?;
        say(format_args!("recorded in {PAGE}"));
        return Ok(());
    }
    compare(&Table::parse(&text).with_context(|| format!("could not read the table of {PAGE}"))?, &counts)
}

fn compare(recorded: &Table, counts: &[Count]) -> Result<()> {
    let here = made_with()?;
    if recorded.made_with != here {
        say(format_args!("recorded with {}, but this is {here}", recorded.made_with));
    }
    let verdicts = recorded.judge(counts);
    verdicts.iter().for_each(say);
    if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Shrunk { .. })) {
        say(
            "fewer instructions than recorded: run `cargo xtask instructions --record`, so that they stay so few",
        );
    }
    let faults: Vec<String> =
        verdicts.iter().filter(|verdict| verdict.is_fault()).map(ToString::to_string).collect();
    let advice = "if that is meant, run `cargo xtask instructions --record`";
    ensure!(faults.is_empty(), "not as in {PAGE}: {}; {advice}", faults.join("; "));
    Ok(())
}

/// The path of the built program.
fn executable() -> Result<PathBuf> {
    let mut ask = cargo(BUILD);
    let output = ask.args(["--quiet", "--message-format", "json"]).stderr(Stdio::inherit()).output();
    let output = output.context("could not run `cargo build`")?;
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let mut messages = messages.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let program = messages.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    program.context("`cargo build` made no program")
}

fn count_all(program: &Path) -> Result<Vec<Count>> {
    let list = Command::new(program).output().context("could not ask for the operations")?;
    let list = String::from_utf8(list.stdout).context("could not read the operations")?;
    list.lines().map(|operation| count(program, operation)).collect()
}

/// The instructions of one operation: the difference of two runs, because everything else is the
/// same in both.
fn count(program: &Path, operation: &str) -> Result<Count> {
    let [few, many] = TIMES;
    let fewer = instructions(program, operation, few)?;
    let more = instructions(program, operation, many)?;
    ensure!(more > fewer, "{operation}: {more} instructions for {many} times, {fewer} for {few}");
    let instructions = (more - fewer + (many - few) / 2) / (many - few);
    Ok(Count { operation: operation.to_owned(), instructions })
}

/// The instructions of a whole run.
fn instructions(program: &Path, operation: &str, times: u64) -> Result<u64> {
    let mut run = valgrind()?;
    run.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = run.arg(operation).arg(times.to_string()).output().context("could not run valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match collected {
        Some(collected) if output.status.success() => Ok(collected),
        _ => bail!("could not count the instructions of {operation:?}: {}", said.trim()),
    }
}

/// The conditions of the figures besides the source: the compiler, and the processor, by which some
/// libraries choose their code.
fn made_with() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").current_dir(workspace()).output();
    let rustc =
        String::from_utf8_lossy(&output.context("could not run `rustc --version`")?.stdout).into_owned();
    let output = valgrind()?.arg("--version").output().context("could not run `valgrind --version`")?;
    let valgrind = String::from_utf8_lossy(&output.stdout).into_owned();
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or(env::consts::ARCH, |(_, name)| name);
    Ok(format!("{}, {}, {}", rustc.trim(), valgrind.trim(), processor.trim()))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn instructions_of_a_run_are_always_as_many() {
        let [one, other] = [(); 2].map(|()| instructions(Path::new("/bin/echo"), "one", 1_000).unwrap());
        assert!(one > 10_000, "{one}");
        assert_eq!(one, other);
        let failed = instructions(Path::new("/bin/false"), "one", 1_000).unwrap_err();
        assert!(failed.to_string().contains("could not count the instructions of \"one\""), "{failed}");
    }
}
