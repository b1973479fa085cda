//! The schema, step by step.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, GenericClient, Transaction};

use super::errors;
use super::sql::Schema;
use super::values::Moment;
use crate::error::StoreError;
use crate::time::Timestamp;

const BOOK: &str = include_str!("sql/migrations.sql");

/// A step of the schema, forth and back.
struct Migration {
    version: i32,
    name: &'static str,
    /// The oldest version of the schema whose code can still run beside this step. A step that only adds
    /// something leaves it as it was, so that old and new processes can run side by side.
    needs: i32,
    up: &'static str,
    down: &'static str,
}

/// All steps, in order. Once released, none is ever changed.
const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "records",
    needs: 1,
    up: include_str!("migrations/0001_records.up.sql"),
    down: include_str!("migrations/0001_records.down.sql"),
}];

/// The version of the schema that this code was written for.
const KNOWN: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

impl Migration {
    /// Of both files, so that neither changes unnoticed.
    fn checksum(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [self.up, self.down] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// A step of the schema, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// When it was applied, if it was.
    pub applied_at: Option<Timestamp>,
    /// Whether this version of semel has it. If not, a newer one has been here.
    pub known: bool,
    /// Whether it was applied as it is here.
    pub unchanged: bool,
}

/// A step that the database says was applied.
struct Applied {
    version: i32,
    name: String,
    checksum: Vec<u8>,
    needs: i32,
    at: Timestamp,
}

/// Refuses a schema that is missing, or that needs newer code than this.
pub(super) async fn check(client: &Client, schema: &Schema) -> Result<(), StoreError> {
    let applied = applied(client, schema).await?;
    let needs = applied.iter().map(|step| step.needs).max();
    match needs {
        None => Err(StoreError::refused(format!(
            "schema {schema} holds no records yet: apply the migrations, with `PostgresStore::migrate` or `semel migrate up`"
        ))),
        Some(needs) if needs > KNOWN => Err(StoreError::refused(format!(
            "schema {schema} needs version {needs}, and this semel knows versions up to {KNOWN}: use a newer semel, or take \
             the schema back with the one that migrated it"
        ))),
        Some(_) if applied.iter().all(|step| step.version < KNOWN) => Err(StoreError::refused(format!(
            "schema {schema} is older than version {KNOWN}: apply the migrations, with `PostgresStore::migrate` or `semel \
             migrate up`"
        ))),
        Some(_) => Ok(()),
    }
}

/// Applies what is missing, and says how many steps that was.
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
    // What a newer semel has added is no hindrance as long as this one can run beside it.
    verify(applied.iter().filter(|step| step.version <= KNOWN || step.needs > KNOWN), schema)?;
    for step in MIGRATIONS.iter().filter(|step| applied.iter().all(|applied| applied.version != step.version))
    {
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

/// Takes back every step above a version, the newest first, and says how many. What they held is gone.
pub(super) async fn down(client: &mut Client, schema: &Schema, to: u32) -> Result<u32, StoreError> {
    let change = begin(client, schema).await?;
    let applied = applied(&change, schema).await?;
    verify(&applied, schema)?;
    let to = i32::try_from(to).unwrap_or(i32::MAX);
    let mut steps = 0;
    for step in MIGRATIONS.iter().rev().filter(|step| step.version > to) {
        if applied.iter().any(|applied| applied.version == step.version) {
            run(&change, &schema.script(step.down)).await?;
            let note = schema.script("delete from semel.migrations where version = $1");
            change.execute(&note, &[&step.version]).await.map_err(errors::of_question)?;
            steps += 1;
        }
    }
    if to <= 0 && !applied.is_empty() {
        // The schema goes, too, unless there is something else in it.
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
    let applied = applied(client, schema).await?;
    let mut steps: Vec<MigrationStatus> = MIGRATIONS
        .iter()
        .map(|step| {
            let found = applied.iter().find(|applied| applied.version == step.version);
            MigrationStatus {
                version: step.version.unsigned_abs(),
                name: step.name.to_owned(),
                applied_at: found.map(|applied| applied.at),
                known: true,
                unchanged: found.is_none_or(|applied| applied.checksum == step.checksum()),
            }
        })
        .collect();
    let unknown =
        applied.into_iter().filter(|applied| MIGRATIONS.iter().all(|step| step.version != applied.version));
    steps.extend(unknown.map(|applied| MigrationStatus {
        version: applied.version.unsigned_abs(),
        name: applied.name,
        applied_at: Some(applied.at),
        known: false,
        unchanged: true,
    }));
    steps.sort_by_key(|step| step.version);
    Ok(steps)
}

/// The whole way up as one script for psql, for those who run their own migrations.
pub(super) fn print(schema: &Schema) -> String {
    let mut script = format!("begin;\n\ncreate schema if not exists {schema};\n\n{}", schema.script(BOOK));
    for step in MIGRATIONS {
        let checksum: String = step.checksum().iter().map(|byte| format!("{byte:02x}")).collect();
        let Migration { version, name, needs, .. } = step;
        // Writing to a String does not fail.
        let _ = write!(
            script,
            "\n{}\ninsert into {schema}.migrations (version, name, checksum, needs)\nvalues ({version}, '{name}', '\\x{checksum}', {needs});\n",
            schema.script(step.up)
        );
    }
    script.push_str("\ncommit;\n");
    script
}

/// A transaction that no other migration of this schema runs beside.
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

/// What the database says was applied; nothing if its book is not there.
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

/// Refuses to build on steps that are not known here, or not the same.
fn verify<'a>(applied: impl IntoIterator<Item = &'a Applied>, schema: &Schema) -> Result<(), StoreError> {
    for step in applied {
        let Some(known) = MIGRATIONS.iter().find(|known| known.version == step.version) else {
            return Err(StoreError::refused(format!(
                "schema {schema} is at version {}, and this semel knows versions up to {KNOWN}: use a newer semel",
                step.version
            )));
        };
        if step.checksum != known.checksum() {
            return Err(StoreError::refused(format!(
                "migration {} ({}) of schema {schema} was applied in another form than this semel has; compare with `semel \
                 migrate print`",
                step.version, step.name
            )));
        }
    }
    Ok(())
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
