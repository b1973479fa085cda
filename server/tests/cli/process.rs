//! The binary, run as a process.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The output of a process, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, with these arguments and without the settings of the developer.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn semel(args: &[&str]) -> Ran {
    end(command(args))
}

/// Runs a command to its end.
pub(crate) fn end(mut command: Command) -> Ran {
    ran(command.output().expect("the binary runs"))
}

/// Runs the binary with this input.
pub(crate) fn semel_reading(args: &[&str], input: &[u8]) -> Ran {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("the binary runs");
    child.stdin.take().expect("it reads").write_all(input).expect("it takes what it reads");
    ran(child.wait_with_output().expect("the binary ends"))
}

fn ran(output: std::process::Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("what it says is UTF-8");
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

impl Ran {
    /// The output, if the command succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The error message, if the command ended with this code.
    #[track_caller]
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self.err
    }

    /// The printed objects, one in each line.
    #[track_caller]
    pub(crate) fn json(self) -> Vec<Value> {
        objects(&self.ok())
    }
}

#[track_caller]
pub(crate) fn objects(lines: &str) -> Vec<Value> {
    let object = |line| match serde_json::from_str(line) {
        Ok(object @ Value::Object(_)) => object,
        other => panic!("{line} is no object: {other:?}"),
    };
    lines.lines().map(object).collect()
}
