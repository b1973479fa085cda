//! Everything that is run on this workspace besides `cargo build`: `cargo xtask --help` lists it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use testkit::progress::say;
use xtask::step::{Steps, all_of};
use xtask::{checks, faults, instructions, tests};

/// Runs the tests and checks of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs all tests against a real Postgres and a real Redis, which it finds and starts by itself.
    ///
    /// A test that fails stops no other one. The names of all that failed are printed together at the end.
    ///
    /// Each of the two is looked for in this order: the URL in SEMEL_TEST_POSTGRES_URL or
    /// SEMEL_TEST_REDIS_URL; an installed server; the Debian package, which is installed when this runs as
    /// root, and otherwise unpacked into ~/.cache/semel. A server that cannot be found is a failure. Those
    /// started here listen on Unix sockets in a folder of their own under /tmp, and are gone afterwards,
    /// however the run ends.
    Test {
        /// Handed on to `cargo nextest run`, or to `cargo test` where nextest is not installed; for example
        /// the name of a test. With arguments the doc tests are left out.
        #[arg(last = true)]
        args: Vec<OsString>,
    },

    /// Checks format, lints, documentation, every feature by itself, and dependencies.
    ///
    /// Stops at the first failure. Dependencies are checked by cargo-deny, and only where it is installed.
    Check,

    /// Runs `check`, and then `test`, `instructions` and `faults`, each also if the one before has failed.
    Ci,

    /// Injects real faults into real processes under load, and checks what clients, handlers and a ledger saw.
    ///
    /// Kills at every step, pauses, cut connections, restarts and promotions of Postgres, failovers of Redis, moved clocks,
    /// full disks; then stores that forget and mistakes made on purpose, which have to be found. It takes some
    /// minutes, starts its own servers, and prints the seed of its choices. A full disk takes root.
    Faults {
        /// Handed on to the harness: --long, --seed NUMBER, --only NAME, --seconds NUMBER, --help for all.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },

    /// Searches all configurations of the protocol's model, also those too big for `test`. Takes long.
    Model {
        /// Only the tests whose name contains this.
        filter: Option<OsString>,
    },

    /// Counts the instructions of the hot paths in memory, and compares them with docs/instructions.md.
    ///
    /// It fails if one takes over a tenth more than is recorded there. Counting is done by valgrind, which is
    /// installed or fetched if it is not here, as the servers of `test` are.
    Instructions {
        /// Writes down what it finds, instead of comparing.
        #[arg(long)]
        record: bool,
    },
}

fn main() -> ExitCode {
    let task = Args::parse().task;
    let mut steps = Steps::default();
    let outcome = match task {
        Task::Test { args } => tests::all(&mut steps, &args),
        Task::Check => checks::all(&mut steps),
        Task::Ci => checks::all(&mut steps).and_then(|()| {
            all_of([
                tests::all(&mut steps, &[]),
                instructions::all(&mut steps, false),
                faults::run(&mut steps, &[]),
            ])
        }),
        Task::Faults { args } => faults::run(&mut steps, &args),
        Task::Model { filter } => tests::model(&mut steps, filter),
        Task::Instructions { record } => instructions::all(&mut steps, record),
    };
    steps.summary();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
