//! Columns of text.

use comfy_table::{ColumnConstraint, Table, Width, presets};

use super::text::escaped;

/// Columns that are printed page by page. A row is one line, so that `grep` finds whole rows.
pub(crate) struct Columns<const N: usize> {
    header: Option<[&'static str; N]>,
    /// The widths, which never shrink, so that pages are aligned.
    widths: [u16; N],
}

/// The space behind a column.
const GAP: u16 = 2;

impl<const N: usize> Columns<N> {
    pub(crate) fn new(header: [&'static str; N]) -> Self {
        Self { header: Some(header), widths: [0; N] }
    }

    /// These rows, below the header if they are the first. Their text is escaped here.
    pub(crate) fn page(&mut self, rows: impl IntoIterator<Item = [String; N]>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if let Some(header) = self.header.take() {
            table.set_header(header.map(str::to_uppercase));
        }
        table.add_rows(rows.into_iter().map(|row| row.map(|cell| escaped(&cell))));
        if table.is_empty() && table.header().is_none() {
            return String::new();
        }
        let found = table.column_max_content_widths();
        for ((column, width), found) in table.column_iter_mut().zip(&mut self.widths).zip(found) {
            *width = (*width).max(found);
            column.set_padding((0, GAP));
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width + GAP)));
        }
        format!("{}\n", table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_stand_under_each_other() {
        let mut columns = Columns::new(["key", "state"]);
        let row = |key: &str, state: &str| [key.to_owned(), state.to_owned()];
        assert_eq!(
            columns.page([row("a-long-key", "done"), row("b", "held")]),
            "KEY         STATE\na-long-key  done\nb           held\n"
        );
        assert_eq!(columns.page([row("c\n", "done")]), "c\\n         done\n");
        assert_eq!(columns.page([]), "");
    }
}
