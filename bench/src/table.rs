//! A table, for the terminal and for a page.

/// Rows of words; the first column has the names.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) title: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<T: Into<String>>(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = T>,
    ) -> Self {
        Self { title: title.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table with columns of equal width.
    pub(crate) fn text(&self) -> String {
        let all = || std::iter::once(&self.columns).chain(&self.rows);
        let width =
            |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = format!("\n{}\n", self.title);
        for row in all() {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 => format!("  {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
            text.push_str(cells.collect::<String>().trim_end());
            text.push('\n');
        }
        text
    }

    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.columns.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.columns), line(&rule))
    }
}
