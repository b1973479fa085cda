//! A place for the records of one test, on a store of any kind.

use std::sync::Arc;

use semel::MemoryStore;
use semel::admin::Inspect;
use semel::store::AnyStore;
use tokio_postgres::SimpleQueryMessage;

use crate::stores::{postgres, redis, sqlite, tiered};

/// A place for the records of one test, for the tests of [`on_every_store!`](crate::on_every_store).
pub enum Place {
    /// Memory, which all stores of the place share.
    Memory(MemoryStore),
    /// A file.
    Sqlite(sqlite::Place),
    /// A schema.
    Postgres(postgres::Place),
    /// A prefix.
    Redis(redis::Place),
    /// A prefix in front of a schema.
    Tiered(tiered::Place),
}

impl Place {
    /// A place in memory.
    pub async fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// A place in a file.
    pub async fn sqlite() -> Self {
        Self::Sqlite(sqlite::Place::new())
    }

    /// A place on the Postgres that all tests share.
    pub async fn postgres() -> Self {
        Self::Postgres(postgres::Place::shared())
    }

    /// A place on the Redis that all tests share.
    pub async fn redis() -> Self {
        Self::Redis(redis::Place::shared())
    }

    /// A place on the Redis that all tests share, in front of the Postgres that they share.
    pub async fn tiered() -> Self {
        Self::Tiered(tiered::Place::shared())
    }

    /// A store with connections of its own, as another process would have.
    pub async fn store(&self) -> Arc<dyn Inspect> {
        match self {
            Self::Tiered(place) => Arc::new(place.tier().await),
            _ => {
                let store = self.opened().await;
                store.migrate().await.unwrap();
                Arc::new(store)
            }
        }
    }

    /// Two stores, as in two processes.
    pub async fn two_stores(&self) -> [Arc<dyn Inspect>; 2] {
        [self.store().await, self.store().await]
    }

    /// A store with connections of its own, whose schema may be missing.
    pub async fn opened(&self) -> AnyStore {
        match self {
            Self::Memory(store) => AnyStore::Memory(store.clone()),
            Self::Sqlite(place) => AnyStore::Sqlite(place.options().open().await.unwrap()),
            Self::Postgres(place) => AnyStore::Postgres(place.options().connect().await.unwrap()),
            Self::Redis(place) => AnyStore::Redis(place.store().await),
            Self::Tiered(_) => panic!("a tier is two stores"),
        }
    }

    /// The whole schema as a script.
    pub fn script(&self) -> String {
        match self {
            Self::Sqlite(place) => place.options().print_migrations(),
            Self::Postgres(place) => place.options().print_migrations().unwrap(),
            _ => panic!("it has no schema"),
        }
    }

    /// Executes statements, as a user would. A table of semel has the form `{records}`.
    pub async fn execute(&self, statements: &str) {
        let statements = self.named(statements);
        match self {
            Self::Sqlite(place) => place.client().execute_batch(&statements).unwrap(),
            Self::Postgres(place) => place.client().await.batch_execute(&statements).await.unwrap(),
            _ => panic!("it has no tables"),
        }
    }

    /// The first column of the rows of a query, as texts. A table of semel has the form `{records}`.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let query = self.named(query);
        match self {
            Self::Sqlite(place) => {
                let client = place.client();
                let mut query = client.prepare(&query).unwrap();
                query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            }
            Self::Postgres(place) => {
                let answers = place.client().await.simple_query(&query).await.unwrap();
                let text = |answer| match answer {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                };
                answers.into_iter().filter_map(text).collect()
            }
            _ => panic!("it has no tables"),
        }
    }

    /// The tables and views of the schema in the order of their names; without the schema, none.
    pub async fn tables(&self) -> Vec<String> {
        match self {
            Self::Sqlite(_) => {
                let tables = "select name from sqlite_schema where name not like 'sqlite_%' order by name";
                self.texts(tables).await
            }
            Self::Postgres(place) => {
                let schema = place.schema.replace('\'', "''");
                let tables =
                    "select relname from pg_class join pg_namespace as schema on schema.oid = relnamespace
                    where relkind in ('r', 'v', 'p') and nspname =";
                self.texts(&format!("{tables} '{schema}' order by relname")).await
            }
            _ => panic!("it has no tables"),
        }
    }

    /// Returns `true` if anything of the schema is there.
    pub async fn has_schema(&self) -> bool {
        match self {
            Self::Postgres(place) => {
                let schema = place.schema.replace('\'', "''");
                !self
                    .texts(&format!("select nspname from pg_namespace where nspname = '{schema}'"))
                    .await
                    .is_empty()
            }
            _ => !self.tables().await.is_empty(),
        }
    }

    /// Ends the lease of a key, as if its owner had been silent for that long.
    pub async fn end_lease(&self, key: &str) {
        let end = match self {
            // In SQLite, the end of a record's retention is a column.
            Self::Sqlite(_) => {
                "lease_until = cast(unixepoch('subsec') * 1000000 as integer), expires_at = case after_crash
                    when 'hold' then null else cast(unixepoch('subsec') * 1000000 as integer) + retention end"
            }
            _ => "lease_until = clock_timestamp()",
        };
        self.execute(&format!("update {{records}} set {end} where key = '{key}'")).await;
    }

    /// Ends the retention of a key. A record that is held, or whose lease is alive, has not expired
    /// yet.
    pub async fn expire(&self, key: &str) {
        let end = match self {
            Self::Sqlite(_) => {
                "retention = 0, expires_at = case when state <> 'running' then updated_at
                    when after_crash = 'hold' then null else lease_until end"
            }
            _ => "retention = 0",
        };
        self.execute(&format!("update {{records}} set {end} where key = '{key}'")).await;
    }

    /// The names of all keys, in their order.
    pub async fn names(&self) -> Vec<String> {
        let mut names = self.texts("select key from {records}").await;
        names.sort_unstable();
        names
    }

    /// A statement with the names of the tables as this store has them.
    fn named(&self, statement: &str) -> String {
        let prefix = if matches!(self, Self::Sqlite(_)) { "semel_" } else { "" };
        ["records", "migrations"].iter().fold(statement.to_owned(), |statement, table| {
            statement.replace(&format!("{{{table}}}"), &format!("{prefix}{table}"))
        })
    }
}
