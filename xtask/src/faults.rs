//! The build and the run of the fault harness.

use std::ffi::OsString;

use anyhow::Result;
use testkit::progress::workspace;

use crate::step::{Steps, cargo};

/// Builds everything with failpoints and mistakes, and runs the rounds.
pub fn run(steps: &mut Steps, args: &[OsString]) -> Result<()> {
    // The profile is that of the tests, whose dependencies are already built.
    let wrapper = workspace().join("faults/rustc.sh");
    let packages = ["--profile", "test", "--package", "faults"];
    let mut build = cargo(["build"]);
    build.args(packages).args(["--package", "semel-server", "--bins"]);
    steps.run("build with faults", build.env("RUSTC_WORKSPACE_WRAPPER", &wrapper))?;
    let mut run = cargo(["run", "--quiet"]);
    run.args(packages).args(["--", "run"]).args(args);
    steps.run("faults", run.env("RUSTC_WORKSPACE_WRAPPER", &wrapper))
}
