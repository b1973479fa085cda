//! The schema of the store, and its place in the statements.
//!
//! Each statement is a file. Two names in the files are placeholders, so that each file runs as it is
//! in psql: `semel` for the schema, and in `prune.sql` `semel.records` for a partition of that table.

use std::fmt;

use crate::words::error::StoreError;

/// The name of a schema, with its quoted form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Schema {
    name: String,
    quoted: String,
}

impl Schema {
    pub(super) const DEFAULT: &'static str = "semel";

    /// Postgres truncates longer names, so that two names could become one.
    const MAX_BYTES: usize = 63;

    /// A schema of any name; see [`Self::check`].
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), quoted: format!("\"{}\"", name.replace('"', "\"\"")) }
    }

    /// Checks that Postgres accepts the name, and that it does not end the comments, texts and
    /// bodies of functions in which it appears.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let name = &self.name;
        let unfit = |c: char| c.is_control() || c == '\'' || c == '\\';
        let bad = name.is_empty() || name.len() > Self::MAX_BYTES || name.starts_with("pg_");
        if bad || name.contains(unfit) || name.contains("$$") {
            return Err(StoreError::refused(format!(
                "with_schema({name:?}): set a name of 1 to {} bytes that does not begin with pg_ and has no apostrophe, \
                 backslash, $$ or control character",
                Self::MAX_BYTES
            )));
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The statement of a file, with this schema in the place of `semel`.
    pub(super) fn statement(&self, file: &str) -> String {
        self.script(&without_header(file))
    }

    /// The statement of a file, with this table in the place of `semel.records`, and this schema in
    /// the place of `semel`.
    pub(super) fn statement_on(&self, file: &str, table: &str) -> String {
        let parts = without_header(file);
        let parts = parts.split(RECORDS).map(|part| self.script(part));
        parts.collect::<Vec<_>>().join(table)
    }

    /// A whole script with this schema in the place of `semel`.
    pub(super) fn script(&self, file: &str) -> String {
        file.replace("semel.", &format!("{self}."))
    }
}

/// The placeholder for a partition.
const RECORDS: &str = "semel.records";

/// A statement without its explaining header: `pg_stat_activity` shows the first kilobyte, which
/// should be the statement.
fn without_header(file: &str) -> String {
    file.lines().skip_while(|line| line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_quoted() {
        let schema = Schema::new(r#"odd "name""#);
        schema.check().unwrap();
        let file = "-- Reads semel.records.\n--\n\nselect 1\nfrom semel.records";
        assert_eq!(schema.statement(file), "\nselect 1\nfrom \"odd \"\"name\"\"\".records");
        assert_eq!(
            schema.statement_on("select semel.expires_at(id) from semel.records", "x.\"semel.records\""),
            "select \"odd \"\"name\"\"\".expires_at(id) from x.\"semel.records\""
        );
        for bad in ["", "pg_semel", "a\0b", "a\nb", "o'clock", "a\\b", "a$$b", &"x".repeat(64)] {
            assert!(Schema::new(bad).check().is_err(), "{bad}");
        }
    }
}
