//! Records, page by page.

use anyhow::Result;
use semel::Timestamp;
use semel::admin::{Cursor, Inspect, ListQuery, Page};
use semel::store::Record;

use super::filter::Filter;
use crate::output::{Columns, Format, RecordLine, json_line, print, remark};

/// The store's part of a listing, asked for page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Stale,
}

/// The row of a record in a table, at a moment of the store's clock.
pub(crate) type Row<const N: usize> = fn(&Record, Timestamp) -> [String; N];

/// Prints the records that match, and the command for the rest.
///
/// A store may answer a page with fewer records than the limit, or with none. It is therefore asked
/// until the limit is reached or no page is left.
pub(crate) async fn show<const N: usize>(
    store: &dyn Inspect,
    (verb, mut query): (Verb, ListQuery),
    filter: &Filter,
    (header, row): ([&'static str; N], Row<N>),
    format: Format,
) -> Result<()> {
    let mut columns = Columns::new(header);
    let (mut shown, mut next) = (0, query.after.take());
    loop {
        query.after = next;
        query.limit = if filter.all { filter.limit } else { filter.limit - shown };
        let page = match verb {
            Verb::List => store.list(&query).await?,
            Verb::Stale => store.stale(&query).await?,
        };
        print(&match format {
            Format::Table if page.records.is_empty() => String::new(),
            Format::Table => columns.page(page.records.iter().map(|record| row(record, page.now))),
            Format::Json => lines(&page)?,
        })?;
        shown += page.records.len() as u32;
        next = page.next;
        if next.is_none() || (!filter.all && shown >= filter.limit) {
            break;
        }
    }
    tell_rest(shown, next.as_ref(), format)
}

fn lines(page: &Page) -> Result<String> {
    page.records.iter().map(|record| json_line(&RecordLine::new(record, page.now))).collect()
}

/// Prints the hint for the next page: in a table as its last line, with JSON, where every line is a
/// record, as a remark.
fn tell_rest(shown: u32, next: Option<&Cursor>, format: Format) -> Result<()> {
    match (next, format) {
        (Some(next), Format::Table) => print(&format!("there may be more: --after {}\n", next.as_str())),
        (Some(next), Format::Json) => {
            remark(&format!("there may be more: --after {}", next.as_str()));
            Ok(())
        }
        (None, Format::Table) if shown == 0 => print("no records\n"),
        (None, _) => Ok(()),
    }
}

/// A principal for a column; a digest is cut to its first digits.
pub(crate) fn short(principal: &str) -> String {
    let is_digest = principal.len() == 64 && principal.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest { format!("{}…", &principal[..12]) } else { principal.to_owned() }
}
