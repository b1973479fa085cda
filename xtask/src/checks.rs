//! The checks of `cargo xtask check`, quickest first.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::progress::say;

use crate::step::{Steps, cargo, cargo_has};

/// Runs the checks up to the first that fails.
pub fn all(steps: &mut Steps) -> Result<()> {
    steps.run("format", &mut cargo(["fmt", "--all", "--check"]))?;
    let lint = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    steps.run("lint", &mut cargo(lint))?;
    let with_faults = ["clippy", "--package", "semel", "--package", "faults", "--all-features", "--"];
    let with_faults = [&with_faults[..], &["-D", "warnings", "--cfg", "semel_faults"]].concat();
    steps.run("lint with faults", &mut cargo(with_faults))?;
    // Private items are left out: documenting them would hide links from public text to items that
    // the reader cannot see.
    let document = ["doc", "--workspace", "--no-deps", "--all-features"];
    steps.run("documentation", cargo(document).env("RUSTDOCFLAGS", "-D warnings"))?;
    features(steps)?;
    steps.run("packages", cargo(PACK).args(["--offline", "--quiet", "--no-verify"]))?;
    dependencies(steps)
}

/// Packs both crates as they would be published. The second one depends on the first: cargo takes it
/// from the package that it has just made, so no registry needs to have it.
const PACK: [&str; 6] = ["package", "--allow-dirty", "--package", "semel", "--package", "semel-server"];

/// Packs both crates, and builds each from its packed files alone. A file that is left out of a
/// package, and a dependency that only the workspace has, are noticed here.
pub fn packages(steps: &mut Steps) -> Result<()> {
    steps.run("packages", &mut cargo(PACK))
}

/// Checks the library with no feature, then with each alone. This uses Clippy rather than `cargo
/// check`: there, refusing warnings takes RUSTFLAGS, and a change of those rebuilds every
/// dependency.
fn features(steps: &mut Steps) -> Result<()> {
    let lint = ["clippy", "--package", "semel", "--no-default-features"];
    let refuse = ["--", "-D", "warnings"];
    steps.run("no feature", cargo(lint).args(refuse))?;
    for feature in features_of("semel")? {
        let name = format!("feature {feature}");
        steps.run(&name, cargo(lint).args(["--features", &feature]).args(refuse))?;
    }
    Ok(())
}

/// The features of a package of this workspace, as cargo knows them, so that a new one needs no
/// entry here.
fn features_of(package: &str) -> Result<Vec<String>> {
    let output = cargo(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("could not run `cargo metadata`")?;
    ensure!(output.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("could not read `cargo metadata`")?;
    let features = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|candidate| candidate["name"] == package))
        .and_then(|package| package["features"].as_object())
        .with_context(|| format!("found no package {package} in `cargo metadata`"))?;
    Ok(features.keys().cloned().collect())
}

/// Checks licences, bans and sources of the dependencies. Known vulnerabilities are left out: those
/// change without a change here, and looking them up needs a network.
fn dependencies(steps: &mut Steps) -> Result<()> {
    if !cargo_has("deny") {
        say("dependencies: left out, as cargo-deny is not installed");
        return Ok(());
    }
    steps.run("dependencies", &mut cargo(["deny", "check", "bans", "licenses", "sources"]))
}
