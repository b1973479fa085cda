//! `semel completions`.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::output::print;

#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Args::command(), "semel", &mut script);
    print(&String::from_utf8_lossy(&script))
}
