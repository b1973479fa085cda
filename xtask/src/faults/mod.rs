//! The build and the run of the fault harness.
//!
//! - `copy`: a copy of the workspace with the mistakes that the harness has to find.

mod copy;

use std::ffi::OsString;

use anyhow::Result;
use testkit::progress::workspace;

use crate::step::{Steps, cargo};

/// Builds a copy of the workspace with failpoints and mistakes, and runs the rounds.
pub fn run(steps: &mut Steps, args: &[OsString]) -> Result<()> {
    let copy = steps.time("copy with mistakes", || copy::make(&workspace()))?;
    // The profile is that of the tests, whose dependencies are already built.
    let packages = ["--profile", "test", "--package", "faults"];
    let build = |verb: &[&str]| {
        let mut command = cargo(verb);
        command.arg("--manifest-path").arg(copy.join("Cargo.toml")).args(packages);
        command.env("RUSTC_WORKSPACE_WRAPPER", copy.join("faults/rustc.sh"));
        command.env("CARGO_TARGET_DIR", copy::target());
        command
    };
    steps.run("build with faults", build(&["build"]).args(["--package", "semel-server", "--bins"]))?;
    steps.run("faults", build(&["run", "--quiet"]).args(["--", "run"]).args(args))
}
