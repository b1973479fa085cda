//! The migrations of the schema.

use std::fmt::Write;

use tokio_postgres::{Client, GenericClient, Transaction};

use super::errors;
use super::schema::Schema;
use super::values::Moment;
use crate::store::shared::migration::{Applied, Migration, MigrationStatus, Steps};
use crate::words::error::StoreError;

const BOOK: &str = include_str!("sql/migrations.sql");

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
pub(super) async fn up(client: &mut Client, schema: &Schema) -> Result<u32, StoreError> {
    let change = begin(client, schema).await?;
    let exists = change
        .query_one("select to_regnamespace($1) is not null", &[&schema.to_string()])
        .await
        .map_err(errors::of_question)?;
    if !exists.get::<_, bool>(0) {
        run(&change, &format!("create schema {schema}")).await?;
    }
    run(&change, &schema.script(BOOK)).await?;
    let applied = applied(&change, schema).await?;
    let mut steps = 0;
    for step in STEPS.way_up(&applied, &place(schema))? {
        run(&change, &schema.script(step.up)).await?;
        let note = schema
            .script("insert into semel.migrations (version, name, checksum, needs) values ($1, $2, $3, $4)");
        change
            .execute(&note, &[&step.version, &step.name, &step.checksum().as_slice(), &step.needs])
            .await
            .map_err(errors::of_question)?;
        steps += 1;
    }
    change.commit().await.map_err(errors::of_question)?;
    Ok(steps)
}

/// Reverts every step above a version, the newest first, and returns their number. The data of
/// these steps is lost.
pub(super) async fn down(client: &mut Client, schema: &Schema, to: u32) -> Result<u32, StoreError> {
    let change = begin(client, schema).await?;
    let applied = applied(&change, schema).await?;
    let mut steps = 0;
    for step in STEPS.way_down(&applied, to, &place(schema))? {
        run(&change, &schema.script(step.down)).await?;
        let note = schema.script("delete from semel.migrations where version = $1");
        change.execute(&note, &[&step.version]).await.map_err(errors::of_question)?;
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
    change.commit().await.map_err(errors::of_question)?;
    Ok(steps)
}

/// Every step that is known here or in the database.
pub(super) async fn status(client: &Client, schema: &Schema) -> Result<Vec<MigrationStatus>, StoreError> {
    Ok(STEPS.status(applied(client, schema).await?))
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

/// Begins a transaction that excludes every other migration of this schema.
async fn begin<'a>(client: &'a mut Client, schema: &Schema) -> Result<Transaction<'a>, StoreError> {
    let change = client.transaction().await.map_err(errors::of_question)?;
    let lock = "select pg_advisory_xact_lock(hashtextextended('semel migrations of ' || $1, 0))";
    change.execute(lock, &[&schema.name()]).await.map_err(errors::of_question)?;
    Ok(change)
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
