//! Tables with aligned columns and bounded width.

use anstyle::Style;

use super::print::{BOLD, styled};

/// Maximum line width.
pub(super) const WIDTH_MAX: usize = 100;
const GAP: usize = 2;
/// Minimum width of a truncated column.
const CUT_MIN: usize = 8;

/// Heading and layout of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Never truncated: ids, states, times.
    Whole(&'static str),
    /// Right-aligned and never truncated: counts.
    Number(&'static str),
    /// Truncated if the line is too long.
    Cut(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        let (Column::Whole(title) | Column::Number(title) | Column::Cut(title)) = self;
        title
    }
}

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().map(|cell| (flat(&cell.0), cell.1)).collect());
    }

    pub fn render(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let titles: Vec<(String, Style)> =
            self.columns.iter().map(|column| (column.title().to_owned(), BOLD)).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            let last = row.iter().rposition(|(cell, _)| !cell.is_empty()).unwrap_or(0);
            for (place, ((cell, style), width)) in row.iter().zip(&widths).enumerate().take(last + 1) {
                let cell = cut(cell, *width);
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) = match self.columns.get(place) {
                    Some(Column::Number(_)) => (padding.as_str(), ""),
                    _ if place == last => ("", ""),
                    _ => ("", padding.as_str()),
                };
                let shown = if *style == Style::new() { cell } else { styled(&cell, *style) };
                line.push_str(&format!("{before}{shown}{after}"));
                if place < last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.title().chars().count()).collect();
        for row in &self.rows {
            for (width, (cell, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let gaps = GAP * self.columns.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > WIDTH_MAX {
            let may_be_cut = |place: &usize| matches!(self.columns[*place], Column::Cut(_)) && widths[*place] > CUT_MIN;
            let Some(widest) = (0..widths.len()).filter(may_be_cut).max_by_key(|place| widths[*place]) else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

/// Styled text.
#[derive(Clone, Debug)]
pub(super) struct Cell(String, Style);

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell(text, Style::new())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell(text.to_owned(), Style::new())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell(super::print::grouped(count), Style::new())
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Cell {
        Cell::from(u64::from(count))
    }
}

pub(super) fn state(word: &str) -> Cell {
    Cell(word.to_owned(), super::print::style_of(word))
}

pub(super) fn marked(text: &str, state: &str) -> Cell {
    Cell(text.to_owned(), super::print::style_of(state))
}

/// Lines of labels and values. Long values wrap; empty ones are omitted.
pub fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<(&str, String)> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let label_width = pairs.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0) + GAP;
    let mut text = String::new();
    for (label, value) in pairs {
        for (place, line) in wrapped(&value, WIDTH_MAX - label_width).into_iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            let padding = " ".repeat(label_width - label.chars().count());
            text.push_str(&format!("{}{padding}{line}\n", styled(label, super::print::DIM)));
        }
    }
    text
}

/// Wraps text at word boundaries.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let characters: Vec<Vec<char>> = text.split_whitespace().map(|word| word.chars().collect()).collect();
    // A word longer than a line is split.
    for word in characters.iter().flat_map(|word| word.chunks(width.max(1))).map(String::from_iter) {
        let word: &str = &word;
        let line = lines.last_mut().expect("there is always a line");
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if length > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Single line without control characters.
fn flat(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table) -> String {
        anstream::adapter::strip_str(&table.render()).to_string()
    }

    #[test]
    fn columns_align_without_trailing_spaces() {
        let mut table = Table::new([Column::Whole("ID"), Column::Number("N"), Column::Cut("WHY")]);
        table.row([Cell::from("job_1"), Cell::from(1_200u64), Cell::from("")]);
        table.row([Cell::from("job_22"), Cell::from(3u64), Cell::from("two\nlines")]);
        assert_eq!(plain(&table), "ID          N  WHY\njob_1   1,200\njob_22      3  two lines\n");
    }

    #[test]
    fn columns_are_truncated_until_the_line_fits() {
        let mut table = Table::new([Column::Whole("ID"), Column::Cut("NAME"), Column::Cut("MESSAGE")]);
        table.row([Cell::from("x".repeat(40)), Cell::from("n".repeat(20)), Cell::from("m ".repeat(80))]);
        let text = plain(&table);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX), "{text}");
        assert!(
            text.contains(&"x".repeat(40)) && text.contains(&"n".repeat(20)) && text.trim_end().ends_with('…'),
            "{text}"
        );
    }

    #[test]
    fn long_values_wrap() {
        let text = pairs([("a", "word ".repeat(30)), ("empty", String::new()), ("long", "v".into())]);
        let text = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("a     word") && lines[1].starts_with("      word"), "{text}");
        assert_eq!(lines[2], "long  v");
    }
}
