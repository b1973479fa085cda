//! The exit codes of the process.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::output::Closed;

/// The reason why a command failed. Scripts rely on the numbers, which do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The store or a file failed; also any error without a code of its own.
    Failed = 1,
    /// The arguments are wrong, reported by clap or by a command.
    Usage = 2,
    /// There is no such key.
    Missing = 3,
    /// The record is not as expected, and was not changed.
    Unchanged = 4,
    /// The key is in several scopes.
    Ambiguous = 5,
}

/// The section of `semel --help` about exit codes.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  failed: the store, or a file
  2  wrong arguments
  3  no such key
  4  nothing changed: the record is not as expected
  5  the key is in several scopes";

impl Exit {
    /// An error that ends the process with this code.
    pub(crate) fn because(self, message: impl Into<String>) -> anyhow::Error {
        Refusal { exit: self, message: message.into() }.into()
    }

    /// The code for the operating system.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }

    /// The code of an error under any context added to it.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<Refusal>().map_or(Self::Failed, |refusal| refusal.exit)
    }
}

/// Returns `true` if the reader of the output has closed it: `semel list | head`.
pub(crate) fn is_quiet(error: &anyhow::Error) -> bool {
    error.is::<Closed>()
}

#[derive(Debug)]
struct Refusal {
    exit: Exit,
    message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Refusal {}
