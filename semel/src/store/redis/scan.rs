//! The listing, the counts and the sweep, by `SCAN`, server by server.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::cmd;

use super::name::{self, Name};
use super::node::Node;
use super::nodes::{Answered, Command};
use super::{RedisStore, Shared, stored};
use crate::store::Prune;
use crate::store::backend::Backend;
use crate::store::inspect::{Cursor, ListQuery, Page, Stats};
use crate::store::shared::group_commit::Lane;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::record::Record;

/// The approximate number of names that are requested at a time.
const STRIDE: u32 = 500;
/// The approximate number of names, of records or not, after which a page ends even if it has no
/// record yet.
const MAX_LOOKED_AT: u32 = 10_000;
/// The number of whole records that are read at a time: each may be large.
const AT_ONCE: usize = 8;

/// A position in the iteration over all names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Position {
    /// The number of the server.
    node: usize,
    /// The cursor of that server's `SCAN`.
    scan: u64,
    /// The names behind this position that were already shown, because they did not all fit onto
    /// the page. The number of names that are read from here on depends on the next page, and on
    /// names that were added since: each entry is kept until its name is met.
    shown: Vec<u64>,
}

impl Position {
    /// The text of a cursor: the numbers, in hexadecimal digits.
    fn cursor(&self) -> Cursor {
        let shown = self.shown.iter().map(|hash| format!(".{hash:x}"));
        Cursor::new(format!("{:x}.{:x}{}", self.node, self.scan, shown.collect::<String>()))
    }

    fn of(cursor: &Cursor) -> Option<Self> {
        let numbers: Result<Vec<u64>, _> =
            cursor.as_str().split('.').map(|digits| u64::from_str_radix(digits, 16)).collect();
        let [node, scan, shown @ ..] = &*numbers.ok()? else { return None };
        Some(Self { node: (*node).try_into().ok()?, scan: *scan, shown: shown.to_vec() })
    }
}

/// An iteration over the names of all records, or of those of a realm.
struct Walk<'a> {
    store: &'a RedisStore,
    nodes: Vec<Arc<Node>>,
    pattern: Vec<u8>,
    at: Position,
}

impl<'a> Walk<'a> {
    fn new(store: &'a RedisStore, realm: Option<&str>, at: Position) -> Self {
        let pattern = name::pattern(&store.shared.options.prefix, realm);
        Self { store, nodes: store.shared.nodes.all(), pattern, at }
    }

    /// The next names, and the position behind them; `None` at the end.
    async fn look(&self, stride: u32) -> Result<Option<(Vec<Name>, Position)>, StoreError> {
        let Some(node) = self.nodes.get(self.at.node) else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(self.at.scan).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(stride);
        let answer = node.ask(scan).await?;
        let (next, names): (u64, Vec<Vec<u8>>) = super::parse(answer)?;
        let mut names: Vec<Name> = names.into_iter().map(Name::listed).collect();
        let mut shown = self.at.shown.clone();
        names.retain(|name| {
            let (digest, before) = (name.digest(), shown.len());
            shown.retain(|hash| *hash != digest);
            shown.len() == before
        });
        let behind = match next {
            0 => Position { node: self.at.node + 1, ..Position::default() },
            scan => Position { node: self.at.node, scan, shown },
        };
        Ok(Some((names, behind)))
    }

    fn is_over(&self) -> bool {
        self.at.node >= self.nodes.len()
    }

    /// The records of some names without their outcomes, which may be large. Records that are gone
    /// since are left out, and so are names that no record can have; a record that cannot be read
    /// is an error in its own place.
    async fn outlines(
        &self,
        names: &[Name],
    ) -> Result<Vec<(Name, Key, Result<Record, StoreError>)>, StoreError> {
        let Shared { options, nodes, .. } = &*self.store.shared;
        let found = join_all(names.iter().map(|name| async {
            let Ok(key) = name.key(&options.prefix) else { return Ok(None) };
            let read = |_| {
                let mut read = cmd("GETRANGE");
                read.arg(name.as_bytes()).arg(0).arg(stored::OUTLINE_BYTES - 1);
                read
            };
            let outline = match nodes.ask(Lane::Claim, name, Command::new(read)).await {
                Ok(Answered { said, offset, .. }) => match said.parse::<Vec<u8>>()? {
                    // An empty reply means either no record or an empty one, which is not the same. A
                    // record that would expire, though it must not, stays once it is read.
                    nothing if nothing.is_empty() || stored::would_expire(&nothing) => {
                        let found = self.store.read_one(name.clone(), key.clone(), "").await;
                        found.map(|(_, record)| record).transpose()
                    }
                    bytes => {
                        let outline = stored::outline(&bytes, key.clone());
                        Some(outline.map(|outline| offset.record_to_store(outline)))
                    }
                },
                Err(error) => Some(Err(error)),
            };
            match outline {
                Some(Err(error)) if error.is_transient() => Err(error),
                outline => Ok(outline.map(|outline| (name.clone(), key, outline))),
            }
        }))
        .await;
        found.into_iter().filter_map(Result::transpose).collect()
    }
}

impl RedisStore {
    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let foreign = || StoreError::refused("the cursor is not from this store");
        let at = query.after.as_ref().map(|cursor| Position::of(cursor).ok_or_else(foreign)).transpose()?;
        let mut page = Page { now: self.clock().await?, records: Vec::new(), next: None };
        if let Some(key) = query.whole_key()? {
            let (now, found) = self.read_one(self.name(&key), key, "").await?;
            page.now = now;
            page.records.extend(found.filter(|record| query.matches(record, now)));
            return Ok(page);
        }
        let limit = query.limit as usize;
        if limit == 0 {
            // A page with a limit of zero has no position from which another page could continue.
            return Ok(page);
        }
        let mut walk = Walk::new(self, query.realm.as_deref(), at.unwrap_or_default());
        let (mut looked_at, mut shown) = (0, Vec::new());
        // The loop goes on when the page is full: whether there is a next page is part of the
        // answer.
        while looked_at < MAX_LOOKED_AT {
            // Names are listed a few at a time, and the iteration cannot stop between them: as many
            // are requested as fit.
            let room = limit - shown.len();
            let stride = if room == 0 { STRIDE } else { STRIDE.min(room.max(16) as u32) };
            let Some((names, behind)) = walk.look(stride).await? else { break };
            looked_at += stride;
            let mut matching = Vec::new();
            for (name, key, outline) in walk.outlines(&names).await? {
                // The clock of the page is used, from which callers derive the phases, too.
                if query.matches(&outline?, page.now) {
                    matching.push((name, key));
                }
            }
            if matching.len() <= room {
                shown.extend(matching);
                walk.at = behind;
            } else if shown.is_empty() {
                matching.truncate(room);
                walk.at.shown.extend(matching.iter().map(|(name, _)| name.digest()));
                shown.extend(matching);
            } else {
                break;
            }
        }
        for some in shown.chunks(AT_ONCE) {
            let read = |(name, key): &(Name, Key)| self.read_one(name.clone(), key.clone(), "");
            for read in join_all(some.iter().map(read)).await {
                page.records.extend(read?.1.filter(|record| query.matches(record, page.now)));
            }
        }
        page.next = (!walk.is_over()).then(|| walk.at.cursor());
        Ok(page)
    }

    pub(super) async fn count(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats::default();
        let mut walk = Walk::new(self, None, Position::default());
        while let Some((names, behind)) = walk.look(STRIDE).await? {
            let now = self.clock().await?;
            for (_, _, outline) in walk.outlines(&names).await? {
                // A record that cannot be read is in no phase.
                if let Ok(record) = outline {
                    stats.count(record.phase(now));
                }
            }
            walk.at = behind;
        }
        Ok(stats)
    }

    /// Removes expired records before Redis removes them itself, which it does a while after they
    /// expire.
    pub(super) async fn sweep(&self, prune: &Prune) -> Result<u64, StoreError> {
        if prune.paced {
            // An iteration over all names every minute would gain nothing.
            return Ok(0);
        }
        let mut walk = Walk::new(self, prune.realm.as_deref(), Position::default());
        let mut removed = 0;
        while removed < u64::from(prune.limit) {
            let Some((names, behind)) = walk.look(STRIDE).await? else { break };
            let over = self.about_to_go(&names).await?;
            let likely = self.clock().await?;
            for (name, key, outline) in walk.outlines(&over).await? {
                let is_over = outline.is_ok_and(|record| record.is_expired(prune.cutoff(likely)));
                if removed < u64::from(prune.limit) && is_over {
                    // The clock of Redis itself is used, because the decision is final here.
                    let (now, found) = self.read_one(name.clone(), key, "").await?;
                    if let Some(record) = found.filter(|record| record.is_expired(prune.cutoff(now))) {
                        removed += u64::from(self.remove(&name, &record).await?);
                    }
                }
            }
            walk.at = behind;
        }
        Ok(removed)
    }

    /// The names that Redis will remove before long, without reading their records.
    async fn about_to_go(&self, names: &[Name]) -> Result<Vec<Name>, StoreError> {
        let left = join_all(names.iter().map(|name| async {
            let left = |_| {
                let mut left = cmd("PTTL");
                left.arg(name.as_bytes());
                left
            };
            self.shared.nodes.ask(Lane::Claim, name, Command::new(left)).await?.said.parse::<i64>()
        }))
        .await;
        let left: Result<Vec<i64>, StoreError> = left.into_iter().collect();
        // Redis counts in whole milliseconds, and a record is removed at the first that is not
        // before its end.
        let grace = super::commands::GRACE.as_millis() as i64 + 1;
        // A name that never expires is not a record.
        let soon = names.iter().zip(left?).filter(|(_, left)| (0..=grace).contains(left));
        Ok(soon.map(|(name, _)| name.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        for at in [
            Position::default(),
            Position { node: 2, scan: u64::MAX, shown: Vec::new() },
            Position { node: 0, scan: 7, shown: vec![1, u64::MAX] },
        ] {
            assert_eq!(Position::of(&at.cursor()), Some(at));
        }
        for bad in ["", "1", "x.1", "1.1.", "-1.2"] {
            assert_eq!(Position::of(&Cursor::new(bad)), None, "{bad}");
        }
    }
}
