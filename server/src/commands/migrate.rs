//! `semel migrate`.

use anyhow::Result;
use clap::{Args, Subcommand};
use semel::admin::MigrationStatus;
use serde_json::json;

use super::shared::store::StoreArgs;
use crate::exit::Exit;
use crate::output::{Columns, OutputArgs, json_line, print, remark};
use crate::stores::Opened;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Brings the schema up to date
    ///
    /// It may run several times: what is there is left alone. Where processes of an older version
    /// cannot run beside the new schema, it says so and changes nothing; stop them, then say --yes.
    ///
    /// Example: semel migrate up --store postgres://semel@db/app
    Up(UpArgs),

    /// Takes the schema back to a version, with the records that it holds
    ///
    /// Without --yes it only says what it would remove, and ends with code 2.
    ///
    /// Example: semel migrate down --to 0 --yes
    Down(DownArgs),

    /// Shows every migration, and whether it was applied
    ///
    /// Example: semel migrate status --output json
    Status(StatusArgs),

    /// Prints the schema as a script, for operators who run migrations with their own tools
    ///
    /// It reaches for no server.
    ///
    /// Example: semel migrate print --store postgres://semel@db/app | psql app
    Print(PrintArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    /// Apply migrations beside which older processes cannot run, too: you have stopped them
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DownArgs {
    /// The version to go back to; 0 leaves nothing
    #[arg(long, value_name = "VERSION")]
    to: u32,

    /// Really do it
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PrintArgs {
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) async fn run(command: MigrateCommand) -> Result<()> {
    let opened = match &command {
        MigrateCommand::Print(args) => return print_script(&args.store),
        // Only `up` creates the file.
        MigrateCommand::Up(args) => args.store.open_or_make().await?,
        MigrateCommand::Down(DownArgs { store, .. }) | MigrateCommand::Status(StatusArgs { store, .. }) => {
            store.open().await?
        }
    };
    let done = match command {
        MigrateCommand::Up(args) => up(&opened, args.yes).await,
        MigrateCommand::Down(args) => down(&opened, &args).await,
        MigrateCommand::Status(args) => status(&opened, &args.output).await,
        MigrateCommand::Print(_) => Ok(()),
    };
    opened.close().await;
    done
}

async fn up(opened: &Opened, older_are_stopped: bool) -> Result<()> {
    if opened.migration_status().await?.is_none() {
        return no_schema();
    }
    let breaking = opened.missing_breaking().await?;
    if !breaking.is_empty() && !older_are_stopped {
        return Err(Exit::Usage.because(format!(
            "processes of an older version cannot run beside migration {}: stop them first, then say --yes",
            breaking.join(", ")
        )));
    }
    print(&match opened.migrate().await? {
        0 => "the schema is up to date\n".to_owned(),
        steps => format!("applied {}\n", migrations(steps as usize)),
    })
}

async fn down(opened: &Opened, args: &DownArgs) -> Result<()> {
    let Some(steps) = opened.migration_status().await? else { return no_schema() };
    let above: Vec<_> =
        steps.iter().filter(|step| step.applied_at.is_some() && step.version > args.to).collect();
    if above.is_empty() {
        return print(&format!("no migration above version {} is applied\n", args.to));
    }
    if !args.yes {
        let names: Vec<String> =
            above.iter().map(|step| format!("{} ({})", step.version, step.name)).collect();
        // Records under a schema that this version cannot use are not counted.
        let records = match opened.store.stats().await {
            Ok(stats) => {
                format!(
                    ", in all {}{} records",
                    if stats.estimated { "about " } else { "" },
                    stats.running + stats.held + stats.lost + stats.done + stats.released
                )
            }
            Err(_) => String::new(),
        };
        return Err(Exit::Usage.because(format!(
            "this takes back {}: {}, and removes what was stored with them{records}; say --yes to do it",
            migrations(above.len()),
            names.join(", ")
        )));
    }
    let steps = opened.migrate_down(args.to).await?;
    print(&format!("took back {}\n", migrations(steps as usize)))
}

async fn status(opened: &Opened, output: &OutputArgs) -> Result<()> {
    let Some(steps) = opened.migration_status().await? else { return no_schema() };
    if output.is_json() {
        return print(&steps.iter().map(line).collect::<Result<String>>()?);
    }
    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let row = |step: &MigrationStatus| {
        let applied = step.applied_at.map_or_else(|| "not yet".to_owned(), |at| at.to_string());
        [step.version.to_string(), step.name.clone(), applied, word(step.known), word(step.unchanged)]
    };
    let mut columns = Columns::new(["version", "name", "applied at", "known", "unchanged"]);
    print(&columns.page(steps.iter().map(row)))
}

fn line(step: &MigrationStatus) -> Result<String> {
    json_line(&json!({
        "version": step.version,
        "name": step.name,
        "applied_at": step.applied_at.map(|at| at.to_string()),
        "known": step.known,
        "unchanged": step.unchanged,
        "breaking": step.breaking,
    }))
}

fn print_script(store: &StoreArgs) -> Result<()> {
    match Opened::script(&store.place()?)? {
        Some(script) => print(&script),
        None => no_schema(),
    }
}

fn migrations(count: usize) -> String {
    if count == 1 { "1 migration".to_owned() } else { format!("{count} migrations") }
}

/// Reports the missing schema as a remark, so that a script or JSON output contains nothing of it.
/// It is not an error.
fn no_schema() -> Result<()> {
    remark("this store has no schema, so there is nothing to migrate");
    Ok(())
}
