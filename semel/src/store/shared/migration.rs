//! The schema of a database, step by step: the part that all databases share.

use std::fmt::Display;

use sha2::{Digest, Sha256};

use crate::words::digest::{frame, hex};
use crate::words::error::StoreError;
use crate::words::time::Timestamp;

/// A step of the schema, and its state in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// The time at which it was applied; `None` if it was not.
    pub applied_at: Option<Timestamp>,
    /// `false` if only a newer version of semel knows this step; that version has then migrated the
    /// database.
    pub known: bool,
    /// Set if the applied step is the same as in this version.
    pub unchanged: bool,
    /// Set if code of an older version cannot run beside it: stop older processes before it is
    /// applied.
    pub breaking: bool,
}

impl MigrationStatus {
    /// A step of this version that is not applied.
    pub fn new(version: u32, name: impl Into<String>) -> Self {
        Self { version, name: name.into(), applied_at: None, known: true, unchanged: true, breaking: false }
    }
}

/// A step of the schema, in both directions.
pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    /// The oldest version of the schema whose code can still run beside this step. A step that only
    /// adds something leaves this version as it was, so that old and new processes can run side by
    /// side.
    pub(crate) needs: i32,
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
}

impl Migration {
    /// The checksum of both files, so that a change of either is noticed.
    pub(crate) fn checksum(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [self.up, self.down] {
            frame(&mut hash, part.as_bytes());
        }
        hash.finalize().into()
    }

    /// The checksum as hexadecimal digits, for scripts.
    pub(crate) fn checksum_digits(&self) -> String {
        hex(&self.checksum())
    }
}

/// A step that is applied according to the database.
pub(crate) struct Applied {
    pub(crate) version: i32,
    pub(crate) name: String,
    pub(crate) checksum: Vec<u8>,
    pub(crate) needs: i32,
    pub(crate) at: Timestamp,
}

/// Returns `true` if older code cannot run beside this step. The first step breaks nothing, because
/// nothing precedes it.
fn is_breaking(version: i32, needs: i32) -> bool {
    version > 1 && needs == version
}

/// All steps of a store, in order. A released step never changes.
pub(crate) struct Steps {
    pub(crate) all: &'static [Migration],
    /// The name of the type with the method `migrate`, for messages.
    pub(crate) store: &'static str,
}

impl Steps {
    /// The version of the schema that this code was written for.
    fn known(&self) -> i32 {
        self.all.last().map_or(0, |step| step.version)
    }

    /// Refuses a schema that is missing, or that needs newer code than this. The place appears in
    /// messages, also in the functions below.
    pub(crate) fn check(&self, applied: &[Applied], place: &dyn Display) -> Result<(), StoreError> {
        let (known, store) = (self.known(), self.store);
        let needs = applied.iter().map(|step| step.needs).max();
        match needs {
            None => Err(StoreError::refused(format!(
                "{place} holds no records yet: apply the migrations, with `{store}::migrate` or `semel migrate up`"
            ))),
            Some(needs) if needs > known => Err(StoreError::refused(format!(
                "{place} needs version {needs}, and this semel knows versions up to {known}: use a newer semel, or take \
                 the schema back with the one that migrated it"
            ))),
            Some(_) if applied.iter().all(|step| step.version < known) => Err(StoreError::refused(format!(
                "{place} is older than version {known}: apply the migrations, with `{store}::migrate` or `semel migrate up`"
            ))),
            Some(_) => Ok(()),
        }
    }

    /// The steps up from the applied ones.
    ///
    /// # Errors
    /// Refused if a step was applied in another form, or is unknown and needs newer code. A step
    /// that a newer semel has added is allowed as long as this one can run beside it.
    pub(crate) fn way_up(
        &self,
        applied: &[Applied],
        place: &dyn Display,
    ) -> Result<Vec<&'static Migration>, StoreError> {
        let known = self.known();
        self.verify(applied.iter().filter(|step| step.version <= known || step.needs > known), place)?;
        let is_missing = |step: &&Migration| applied.iter().all(|applied| applied.version != step.version);
        Ok(self.all.iter().filter(is_missing).collect())
    }

    /// The steps down to a version, the newest first.
    ///
    /// # Errors
    /// Refused if a step is unknown, or was applied in another form.
    pub(crate) fn way_down(
        &self,
        applied: &[Applied],
        to: u32,
        place: &dyn Display,
    ) -> Result<Vec<&'static Migration>, StoreError> {
        self.verify(applied, place)?;
        let is_there = |step: &&Migration| applied.iter().any(|applied| applied.version == step.version);
        let above = self.all.iter().rev().filter(|step| step.version.unsigned_abs() > to);
        Ok(above.filter(is_there).collect())
    }

    /// Every step that is known here or in the database.
    pub(crate) fn status(&self, applied: Vec<Applied>) -> Vec<MigrationStatus> {
        let known = self.all.iter().map(|step| {
            let found = applied.iter().find(|applied| applied.version == step.version);
            MigrationStatus {
                version: step.version.unsigned_abs(),
                name: step.name.to_owned(),
                applied_at: found.map(|applied| applied.at),
                known: true,
                unchanged: found.is_none_or(|applied| applied.checksum == step.checksum()),
                breaking: is_breaking(step.version, step.needs),
            }
        });
        let mut steps: Vec<MigrationStatus> = known.collect();
        let unknown =
            applied.into_iter().filter(|applied| self.all.iter().all(|step| step.version != applied.version));
        steps.extend(unknown.map(|applied| MigrationStatus {
            version: applied.version.unsigned_abs(),
            name: applied.name,
            applied_at: Some(applied.at),
            known: false,
            unchanged: true,
            breaking: is_breaking(applied.version, applied.needs),
        }));
        steps.sort_by_key(|step| step.version);
        steps
    }

    /// Refuses to build on steps that are unknown here, or differ.
    fn verify<'a>(
        &self,
        applied: impl IntoIterator<Item = &'a Applied>,
        place: &dyn Display,
    ) -> Result<(), StoreError> {
        for step in applied {
            let Some(known) = self.all.iter().find(|known| known.version == step.version) else {
                return Err(StoreError::refused(format!(
                    "{place} is at version {}, and this semel knows versions up to {}: use a newer semel",
                    step.version,
                    self.known()
                )));
            };
            if step.checksum != known.checksum() {
                return Err(StoreError::refused(format!(
                    "migration {} ({}) of {place} was applied in another form than this semel has; compare with `semel migrate \
                     print`",
                    step.version, step.name
                )));
            }
        }
        Ok(())
    }
}
