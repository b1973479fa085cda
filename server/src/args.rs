//! The command line.

use clap::{Parser, Subcommand};

/// Makes operations safe to retry.
///
/// A key is claimed in a store, one attempt runs, its outcome is recorded, and every repeat is answered from the
/// record.
#[derive(Debug, Parser)]
#[command(name = "semel", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what semel does, with a small payment service in this process
    ///
    /// Sends a first request, a repeat, a repeat with another body, 32 at once, and one whose handler crashes,
    /// and prints what was asked, what ran and what was answered. It needs no database, listens on no port and
    /// leaves nothing behind.
    ///
    /// Example: semel demo
    #[command(verbatim_doc_comment)]
    Demo,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
