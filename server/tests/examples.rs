//! The files that are shipped beside the binary, which work with it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::programs;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A demo that stays up until this is dropped.
struct Demo {
    process: Child,
    url: String,
}

impl Demo {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_semel"))
            .arg("demo")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let out = BufReader::new(process.stdout.take().expect("it has an output"));
        let mut lines = out.lines().map(|line| line.expect("its output is text"));
        let curl = lines.find(|line| line.trim_start().starts_with("curl ")).expect("it says how to try it");
        let url = curl.split_whitespace().find_map(|word| word.strip_suffix("/payments"));
        let url = url.expect("the line has a URL").to_owned();
        // The rest is read, so that the demo can continue.
        lines.find(|line| line.starts_with("Ctrl-C")).expect("it says how to end it");
        Self { process, url }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The demo gets a signal and is not killed, so that it leaves nothing behind.
        let told = Command::new("kill").arg(self.process.id().to_string()).status();
        if !told.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Java, if it is installed: no other part of the project needs it.
fn java() -> Option<Command> {
    let found = Command::new("java").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("java is not here, so examples/Pay.java was not run");
    }
    found.then(|| Command::new("java"))
}

#[test]
fn examples_in_other_languages_pay_through_the_gateway() {
    let demo = Demo::start();
    let (python, node) = (programs::python().unwrap(), programs::node().unwrap());
    for (interpreter, example) in [(Some(python), "pay.py"), (Some(node), "pay.mjs"), (java(), "Pay.java")] {
        let Some(mut interpreter) = interpreter else { continue };
        let output = interpreter.arg(root().join("examples").join(example)).arg(&demo.url).output();
        let output = output.expect("the interpreter runs");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("receipt"), "{example}: {output:?}");
    }
}

/// The result of `semel config check` for a file: the configuration, or the errors.
fn check(file: &Path) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    let output = command.args(["config", "check", "--config"]).arg(file).env_clear().output();
    let output = output.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_example_configuration_can_be_used() {
    let shown = check(&root().join("packaging/semel.toml")).unwrap();
    for part in ["\"path\": \"/charges\"", "\"policy\": \"retry\"", "\"scope\": \"header:x-user-id\""] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn the_transactional_route_of_the_example_configuration_needs_its_postgres() {
    let example = std::fs::read_to_string(root().join("packaging/semel.toml")).unwrap();
    let ledger = example.replace("# [[route]]", "[[route]]").replace("# path", "path");
    let ledger = ledger.replace("# policy = \"transactional\"", "policy = \"transactional\"");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("semel.toml");
    std::fs::write(&file, &ledger).unwrap();
    let refused = check(&file).unwrap_err();
    let says = "route /ledger/*: the policy `transactional` needs a Postgres store";
    assert!(refused.contains(says), "{refused}");
    std::fs::write(&file, ledger.replace("sqlite:semel.db", "postgres://app@db/app")).unwrap();
    let shown = check(&file).unwrap();
    assert!(shown.contains("\"policy\": \"transactional\""), "{shown}");
}
