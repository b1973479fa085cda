//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::completions::CompletionsArgs;
use crate::commands::health::HealthArgs;
use crate::commands::inspect::InspectArgs;
use crate::commands::list::ListArgs;
use crate::commands::migrate::MigrateCommand;
use crate::commands::prune::PruneArgs;
use crate::commands::resolve::ResolveArgs;
use crate::commands::stale::StaleArgs;
use crate::commands::stats::StatsArgs;
use crate::commands::undo::UndoArgs;
use crate::config::Settings;
use crate::exit;
use crate::probe::ProbeArgs;

/// Makes operations safe to retry.
///
/// A key is claimed in a store, one attempt runs, its outcome is recorded, and every repeat is
/// answered from the record. `semel demo` shows it; `semel gateway` does it for a service in any
/// language; the other commands are for operators.
#[derive(Debug, Parser)]
#[command(name = "semel", version, arg_required_else_help = true, max_term_width = 110, after_help = exit::HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives a service in any language safe retries: a proxy for the Idempotency-Key header
    ///
    /// Requests with a key run once: the gateway claims the key, sends the request to the upstream,
    /// records its response, and answers every repeat from the record. Requests without a key pass
    /// through. The upstream gets the headers Semel-Key, Semel-Token, Semel-Fence and
    /// Semel-Attempt, and may answer with Idempotency-Settle: complete, release or abandon.
    ///
    /// SIGHUP reloads the file of --config; SIGTERM lets requests in progress end, and then stops
    /// the gateway.
    ///
    /// Example: semel gateway --upstream http://127.0.0.1:3000
    ///
    /// Example: semel gateway --config semel.toml --store postgres://semel@db/app --cache
    /// redis://cache
    Gateway(Box<Settings>),

    /// Checks a configuration of the gateway
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Shows what semel does: a gateway, a small payment service and SQLite, in this process
    ///
    /// Sends a first request, a repeat, a repeat with another body, 32 at once, and one whose
    /// service fails, and prints the requests, the runs and the responses. Then the demo stays up,
    /// for you to try. It needs nothing and leaves nothing behind.
    ///
    /// Example: semel demo --exit
    Demo {
        /// End after the story, instead of staying up
        #[arg(long)]
        exit: bool,
    },

    /// Brings the schema of the store up to date, or reverts it
    ///
    /// Redis and memory have none.
    ///
    /// Example: semel migrate up --store postgres://semel@db/app
    #[command(subcommand)]
    Migrate(MigrateCommand),

    /// Lists records: the key, its state and its owner
    ///
    /// The first hundred, with the cursor of the next page; --all shows all of them. Expired
    /// records are included until they are pruned.
    ///
    /// Example: semel list --state running --older-than 10m
    ///
    /// Example: semel list --all --output json | jq -r .key
    List(ListArgs),

    /// Lists held and lost records: their lease is over without an outcome
    ///
    /// Held records wait for an operator: `semel inspect` shows one, with the possible commands.
    /// Lost records need no operator: the next attempt takes over.
    ///
    /// Example: semel stale
    Stale(StaleArgs),

    /// Shows one record: its intent, its timeline and its outcome
    ///
    /// For a held record it shows the possible commands; for a lost one, the reason why none is
    /// necessary.
    ///
    /// Example: semel inspect order-42 --body
    Inspect(InspectArgs),

    /// Records the outcome of a held or lost key, because its effect happened
    ///
    /// Every repeat gets this answer from now on. Only a held or lost key can be resolved, and only
    /// with the fence that you saw: if another attempt has the key by now, nothing is changed.
    ///
    /// Example: semel resolve order-42 --fence 1763200000000000 --status 201 --body '{"id":7}'
    /// --reason 'seen at the bank'
    Resolve(ResolveArgs),

    /// Lets a held or lost key be claimed again, because its effect did not happen
    ///
    /// The next request with this key runs. Only a held or lost key can be reset, and only with the
    /// fence that you saw.
    ///
    /// Example: semel reset order-42 --fence 1763200000000000 --reason 'the bank has no such
    /// charge'
    Reset(UndoArgs),

    /// Makes a key as if it had never been used; its outcome is removed
    ///
    /// The next request with this key runs, whatever its intent. Any key that does not run can be
    /// forgotten, with the fence that you saw.
    ///
    /// Example: semel forget order-42 --fence 1763200000000000 --reason 'sent by a test'
    Forget(UndoArgs),

    /// Removes expired records in batches
    ///
    /// `semel gateway` does so by itself. Several processes may prune one store.
    ///
    /// Example: semel prune --dry-run
    Prune(PruneArgs),

    /// Counts the records in each state
    ///
    /// Example: semel stats --output json
    Stats(StatsArgs),

    /// Checks that the store, or a gateway, is healthy
    ///
    /// The exit code is 0 if it is, and 1 if not, for health checks of containers.
    ///
    /// Example: semel health --gateway http://127.0.0.1:9180
    Health(HealthArgs),

    /// Tells what any server that promises safe retries does with them
    ///
    /// Sends pairs of requests, races, other bodies and requests whose client leaves, and judges by
    /// the answers. The requests run: probe a test system. Each check is right, wrong (a double
    /// effect, a stuck key or another client's answer), weak, or unknown where the answers do not
    /// tell. The exit code is 1 if a check is wrong.
    ///
    /// Example: semel probe http://127.0.0.1:3000/payments --body '{"amount":1}' --other-body
    /// '{"amount":2}'
    ///
    /// Example: semel probe https://test.example/orders --header 'Authorization: Bearer TOKEN'
    /// --dialect stripe --page probe.html
    Probe(Box<ProbeArgs>),

    /// Prints completions for a shell
    ///
    /// Example: semel completions bash > /etc/bash_completion.d/semel
    Completions(CompletionsArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Reads flags, variables and the file as `semel gateway` would, and shows the resulting
    /// configuration
    ///
    /// The command opens no store and no port. The exit code is 1 if something is wrong, and the
    /// message names it.
    ///
    /// Example: semel config check --config semel.toml
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

    /// The commands below one that have none below them.
    fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
        let below: Vec<_> = command.get_subcommands().flat_map(leaves).collect();
        if below.is_empty() { vec![command] } else { below }
    }

    #[test]
    fn every_command_says_what_it_does_with_an_example() {
        let args = Args::command();
        for command in leaves(&args) {
            let name = command.get_name();
            assert!(command.get_about().is_some_and(|about| about.to_string().len() > 10), "{name}");
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(long.contains("\nExample: semel "), "{name}: {long}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
    }
}
