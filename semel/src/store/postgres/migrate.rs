//! The migrations of the schema.

use std::fmt::Write;
use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, Transaction};

use super::errors;
use super::options::PostgresOptions;
use super::schema::Schema;
use super::session::{LONG, Session, within};
use super::values::Moment;
use crate::store::shared::migration::{Applied, Migration, MigrationStatus, Steps};
use crate::words::error::StoreError;

const BOOK: &str = include_str!("sql/migrations.sql");

/// The pause before the lock of another migration is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

const STEPS: Steps = Steps {
    store: "PostgresStore",
    all: &[
        Migration {
            version: 1,
            name: "records",
            needs: 1,
            up: include_str!("migrations/0001_records.up.sql"),
            down: include_str!("migrations/0001_records.down.sql"),
        },
        Migration {
            version: 2,
            name: "retention",
            needs: 2,
            up: include_str!("migrations/0002_retention.up.sql"),
            down: include_str!("migrations/0002_retention.down.sql"),
        },
        Migration {
            version: 3,
            name: "upkeep",
            needs: 2,
            up: include_str!("migrations/0003_upkeep.up.sql"),
            down: include_str!("migrations/0003_upkeep.down.sql"),
        },
        Migration {
            version: 4,
            name: "secrets",
            needs: 2,
            up: include_str!("migrations/0004_secrets.up.sql"),
            down: include_str!("migrations/0004_secrets.down.sql"),
        },
    ],
};

/// Refuses a schema that is missing, or that needs newer code than this.
pub(super) async fn check(client: &Client, schema: &Schema) -> Result<(), StoreError> {
    STEPS.check(&applied(client, schema).await?, &place(schema))
}

/// Applies the missing steps, and returns their number.
///
/// Everything but the steps themselves has a time limit: the time that a step takes depends on the
/// size of the table.
pub(super) async fn up(options: &PostgresOptions) -> Result<u32, StoreError> {
    let schema = &options.schema;
    let mut session = Session::open(options).await?;
    let change = begin(&mut session.client, options).await?;
    let prepared = async {
        let question = "select to_regnamespace($1) is not null";
        let exists = change.query_one(question, &[&schema.to_string()]).await.map_err(errors::of_question)?;
        if !exists.get::<_, bool>(0) {
            run(&change, &format!("create schema {schema}")).await?;
        }
        run(&change, &schema.script(BOOK)).await?;
        applied(&change, schema).await
    };
    let applied = within(options.timeout, prepared).await?;
    let mut steps = 0;
    for step in STEPS.way_up(&applied, &place(schema))? {
        run(&change, &schema.script(step.up)).await?;
        let note = schema
            .script("insert into semel.migrations (version, name, checksum, needs) values ($1, $2, $3, $4)");
        let checksum = step.checksum();
        let noted: [&(dyn ToSql + Sync); 4] = [&step.version, &step.name, &checksum.as_slice(), &step.needs];
        let noted = async { change.execute(&note, &noted).await.map_err(errors::of_question) };
        within(options.timeout, noted).await?;
        steps += 1;
    }
    commit(change, options).await?;
    Ok(steps)
}

/// Reverts every step above a version, the newest first, and returns their number. The data of
/// these steps is lost.
///
/// The time limits are those of [`up`].
pub(super) async fn down(options: &PostgresOptions, to: u32) -> Result<u32, StoreError> {
    let schema = &options.schema;
    let mut session = Session::open(options).await?;
    let change = begin(&mut session.client, options).await?;
    let applied = within(options.timeout, applied(&change, schema)).await?;
    let mut steps = 0;
    for step in STEPS.way_down(&applied, to, &place(schema))? {
        run(&change, &schema.script(step.down)).await?;
        let note = schema.script("delete from semel.migrations where version = $1");
        let noted = async { change.execute(&note, &[&step.version]).await.map_err(errors::of_question) };
        within(options.timeout, noted).await?;
        steps += 1;
    }
    if to == 0 && !applied.is_empty() {
        // The schema is removed, too, unless it contains other objects.
        let remove = format!(
            "drop table {schema}.migrations;
            do $$
            begin
                execute {};
            exception
                when dependent_objects_still_exist or insufficient_privilege then null;
            end
            $$",
            literal(&format!("drop schema {schema}"))
        );
        run(&change, &remove).await?;
    }
    commit(change, options).await?;
    Ok(steps)
}

/// Every step that is known here or in the database.
pub(super) async fn status(options: &PostgresOptions) -> Result<Vec<MigrationStatus>, StoreError> {
    let session = Session::open(options).await?;
    Ok(STEPS.status(within(options.timeout, applied(&session.client, &options.schema)).await?))
}

/// The whole way up as one script for psql, for operators who run migrations with their own tools.
pub(super) fn print(schema: &Schema) -> String {
    let mut script = format!("begin;\n\ncreate schema if not exists {schema};\n\n{}", schema.script(BOOK));
    for step in STEPS.all {
        let checksum = step.checksum_digits();
        let Migration { version, name, needs, .. } = step;
        // Writing to a `String` does not fail.
        let _ = write!(
            script,
            "\n{}\ninsert into {schema}.migrations (version, name, checksum, needs)\nvalues ({version}, '{name}', '\\x{checksum}', {needs});\n",
            schema.script(step.up)
        );
    }
    script.push_str("\ncommit;\n");
    script
}

/// Begins a transaction that excludes every other migration of this schema. It waits for one that is
/// in progress, by a question that is answered at once, so that a server that does not answer is not
/// waited for.
async fn begin<'a>(client: &'a mut Client, options: &PostgresOptions) -> Result<Transaction<'a>, StoreError> {
    let begun = async { client.transaction().await.map_err(errors::of_question) };
    let change = within(options.timeout, begun).await?;
    let lock = "select pg_try_advisory_xact_lock(hashtextextended('semel migrations of ' || $1, 0))";
    let mut is_told = false;
    loop {
        let tried = async {
            let tried = change.query_one(lock, &[&options.schema.name()]).await;
            tried.map_err(errors::of_question)
        };
        if within(options.timeout, tried).await?.get(0) {
            return Ok(change);
        }
        if !is_told {
            tracing::info!("waiting for another migration of {}", place(&options.schema));
            is_told = true;
        }
        sleep(LOCK_PAUSE).await;
    }
}

/// Commits. The server may have much to write.
async fn commit(change: Transaction<'_>, options: &PostgresOptions) -> Result<(), StoreError> {
    let committed = async { change.commit().await.map_err(errors::of_question) };
    within(options.timeout * LONG, committed).await
}

async fn run(change: &Transaction<'_>, script: &str) -> Result<(), StoreError> {
    change
        .batch_execute(script)
        .await
        .map_err(|e| StoreError::refused("a migration failed; nothing was changed").with_source(e))
}

/// The applied steps according to the database; none if its table of migrations is missing.
async fn applied(client: &impl GenericClient, schema: &Schema) -> Result<Vec<Applied>, StoreError> {
    let book = client
        .query_one("select to_regclass($1) is not null", &[&format!("{schema}.migrations")])
        .await
        .map_err(errors::of_question)?;
    if !book.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let question = schema
        .script("select version, name, checksum, needs, applied_at from semel.migrations order by version");
    let rows = client.query(&question, &[]).await.map_err(errors::of_question)?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Applied {
            version: row.try_get(0)?,
            name: row.try_get(1)?,
            checksum: row.try_get(2)?,
            needs: row.try_get(3)?,
            at: row.try_get::<_, Moment>(4)?.0,
        })
    };
    rows.iter().map(read).collect::<Result<_, tokio_postgres::Error>>().map_err(|e| {
        StoreError::corrupt(format!("{schema}.migrations is not as semel wrote it")).with_source(e)
    })
}

/// The name of the schema in messages.
fn place(schema: &Schema) -> String {
    format!("schema {schema}")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
