//! The command line.

use clap::{Parser, Subcommand};

use crate::config::Settings;

/// Makes operations safe to retry.
///
/// A key is claimed in a store, one attempt runs, its outcome is recorded, and every repeat is answered from the
/// record. `semel demo` shows it; `semel gateway` does it for a service in any language; the other commands are for
/// whoever looks after the records.
#[derive(Debug, Parser)]
#[command(name = "semel", version, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives a service in any language safe retries: a proxy that knows the Idempotency-Key
    ///
    /// Requests with a key run once: the gateway claims the key, asks the upstream, records what it answers, and answers every
    /// repeat from the record. Requests without a key pass through. The upstream gets the headers Semel-Token, Semel-Fence
    /// and Semel-Attempt, and may answer with Idempotency-Verdict: record, release or abandon.
    ///
    /// SIGHUP reads the file of --config anew; SIGTERM lets requests under way end, and then ends.
    ///
    /// Example: semel gateway --upstream http://127.0.0.1:3000
    /// Example: semel gateway --config semel.toml --store postgres://semel@db/app --cache redis://cache
    #[command(verbatim_doc_comment)]
    Gateway(Box<Settings>),

    /// Checks a configuration of the gateway
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Shows what semel does: a gateway, a small payment service and SQLite, in this process
    ///
    /// Sends a first request, a repeat, a repeat with another body, 32 at once, and one whose service breaks down, and prints
    /// what was asked, what ran and what was answered. Then it stays up, for you to try. It needs nothing and leaves
    /// nothing behind.
    ///
    /// Example: semel demo --exit
    #[command(verbatim_doc_comment)]
    Demo {
        /// End after the story, instead of staying up
        #[arg(long)]
        exit: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Reads flags, variables and the file as `semel gateway` would, and shows what would be in force
    ///
    /// It opens no store and listens nowhere. The exit code is 1 if something is wrong, and the message says what.
    ///
    /// Example: semel config check --config semel.toml
    #[command(verbatim_doc_comment)]
    Check(Box<Settings>),
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
