//! How the process ends.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::output::Closed;

/// Why a command did not do what it was asked. The numbers are for scripts, and stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The store or a file failed; every error that says nothing else.
    Failed = 1,
    /// The arguments are wrong, as clap says it, too.
    Usage = 2,
    /// There is no such key.
    Missing = 3,
    /// The record is not as expected, and was not changed.
    Unchanged = 4,
    /// The key is in several scopes.
    Ambiguous = 5,
}

/// What `semel --help` says about them.
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

    /// The code for the system.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }

    /// The code for an error, whatever context it has got on its way.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<Refusal>().map_or(Self::Failed, |refusal| refusal.exit)
    }
}

/// Whether somebody who reads our output had enough of it: `semel list | head`.
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
