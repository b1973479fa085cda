//! What commands print: tables for people, JSON lines for programs.

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

/// How to show what was found.
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
/// [`Closed`] if nobody reads any more.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("could not write to the standard output"),
    }
}

/// Says something beside the output. Nobody has to hear it.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A value as a line of JSON.
///
/// What a terminal would obey or hide is written as `\u…`: the same text to a program, and harmless to a person.
///
/// # Errors
/// If the value has no JSON form.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String> {
    let mut line = text::escaped_json(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// Nobody reads what is printed. It is an end, and no failure.
#[derive(Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the standard output")
    }
}

impl Error for Closed {}
