//! The output of commands: tables for people, JSON lines for programs.

mod age;
mod record;
mod table;
mod text;

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

pub(crate) use age::{age, when};
pub(crate) use record::{RecordLine, hex};
pub(crate) use table::Columns;
pub(crate) use text::{escaped, escaped_lines, quoted, readable};

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs: an object a line
    Json,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArgs {
    /// How to show it
    #[arg(long = "output", value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) format: Format,
}

impl OutputArgs {
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

/// Prints whole lines, at once.
///
/// # Errors
/// [`Closed`] if the reader has closed the output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("could not write to the standard output"),
    }
}

/// Prints a message beside the output; a failure to do so is ignored.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A value as a line of JSON.
///
/// Characters that a terminal would interpret or hide are written as `\u…`: the same text to a
/// program, and harmless to a person.
///
/// # Errors
/// If the value has no JSON form.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String> {
    let mut line = text::escaped_json(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// The reader has closed the output. The command ends, without a failure.
#[derive(Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the standard output was closed")
    }
}

impl Error for Closed {}
