//! The commands for this workspace besides `cargo build`; `cargo xtask --help` lists them.

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
    /// Runs all tests against a real Postgres and a real Redis, which it finds and starts by
    /// itself.
    ///
    /// A failed test does not stop the others. The names of all failed tests are printed together
    /// at the end.
    ///
    /// Each server is searched in this order: the URL in SEMEL_TEST_POSTGRES_URL or
    /// SEMEL_TEST_REDIS_URL; an installed server; the Debian package, which is installed when this
    /// runs as root, and otherwise unpacked into ~/.cache/semel. A server that cannot be found is a
    /// failure. The started servers listen on Unix sockets in a folder of their own under /tmp, and
    /// are removed afterwards, in whatever way the run ends.
    Test {
        /// Passed on to `cargo nextest run`, or to `cargo test` where nextest is not installed; for
        /// example the name of a test. With arguments the doc tests are left out.
        #[arg(last = true)]
        args: Vec<OsString>,
    },

    /// Checks format, lints, documentation, every feature by itself, packages, and dependencies.
    ///
    /// Stops at the first failure. Dependencies are checked by cargo-deny, and only where it is
    /// installed.
    Check,

    /// Packs both crates as they would be published, and builds each from its packed files alone.
    ///
    /// This builds all dependencies a second time. `check` packs the crates without building them.
    Package,

    /// Runs `check`, and then `test`, `instructions` and `faults`, each even if the previous one
    /// has failed.
    Ci,

    /// Injects real faults into real processes under load, and checks the observations of clients,
    /// handlers and a ledger.
    ///
    /// Kills at every step, pauses, cut connections, restarts and promotions of Postgres, failovers
    /// of Redis, moved clocks, full disks; then stores that forget and mistakes made on purpose,
    /// which have to be found. It takes some minutes, starts its own servers, and prints the seed
    /// of its choices. A full disk requires root.
    Faults {
        /// Passed on to the harness: --long, --seed NUMBER, --only NAME, --seconds NUMBER, --help
        /// for all.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },

    /// Searches all configurations of the protocol's model, including those that are too large for
    /// `test`. This takes long.
    Model {
        /// Only the tests whose name contains this.
        filter: Option<OsString>,
    },

    /// Counts the instructions of the hot paths in memory, and compares them with
    /// docs/instructions.md.
    ///
    /// It fails if an operation takes over a tenth more than is recorded there. Valgrind counts; if
    /// it is missing, it is installed or fetched like the servers of `test`.
    Instructions {
        /// Records the results, instead of comparing.
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
        Task::Package => checks::packages(&mut steps),
        Task::Ci => all_of([
            checks::all(&mut steps),
            tests::all(&mut steps, &[]),
            instructions::all(&mut steps, false),
            faults::run(&mut steps, &[]),
        ]),
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
