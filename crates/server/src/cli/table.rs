//! Tables for a terminal, laid out by `comfy-table`.
//!
//! A table uses the width of the terminal and wraps what does not fit. It has no width limit when standard output is not a
//! terminal, so that a pipe gets one line per row.

use anstyle::{AnsiColor, Color, Effects, Style};
use comfy_table::{Attribute, CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use sluice_domain::printable;

use super::print::{BOLD, DIM};

/// Spaces between two columns.
const GAP: u16 = 2;
/// Minimum width of a column that wraps.
const WRAP_MIN: u16 = 8;

/// Layout of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Never wrapped: ids, states, times.
    Whole(&'static str),
    /// Never wrapped, aligned to the right: counts.
    Number(&'static str),
    /// Wrapped where the terminal is too narrow.
    Wrap(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        let (Column::Whole(title) | Column::Number(title) | Column::Wrap(title)) = self;
        title
    }
}

/// Rows under column titles.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, with a line break after each line.
    pub fn render(&self) -> String {
        self.render_in(None)
    }

    /// The width is that of the terminal unless it is given.
    fn render_in(&self, width: Option<u16>) -> String {
        let mut table = borderless(width);
        let title = |column: &Column| Cell(column.title().to_owned(), BOLD).laid_out();
        table.set_header(self.columns.iter().map(title).collect::<Vec<_>>());
        for row in &self.rows {
            table.add_row(row.iter().map(Cell::laid_out).collect::<Vec<_>>());
        }
        lay_out(&mut table, &self.columns)
    }
}

fn borderless(width: Option<u16>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // `print` removes the styles where they are not wanted.
    table.enforce_styling().style_text_only();
    if let Some(width) = width {
        table.set_width(width);
    }
    table
}

fn lay_out(table: &mut comfy_table::Table, columns: &[Column]) -> String {
    let widths = table.column_max_content_widths();
    let count = table.column_count();
    for (index, (layout, column)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
        let gap = if index + 1 == count { 0 } else { GAP };
        column.set_padding((0, gap));
        column.set_constraint(match layout {
            Column::Whole(_) | Column::Number(_) => ColumnConstraint::ContentWidth,
            Column::Wrap(_) => ColumnConstraint::LowerBoundary(Width::Fixed(widths[index].min(WRAP_MIN) + gap)),
        });
        if matches!(layout, Column::Number(_)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// A text in a table, and its style.
#[derive(Clone, Debug)]
pub(super) struct Cell(String, Style);

impl Cell {
    fn laid_out(&self) -> comfy_table::Cell {
        let Cell(text, style) = self;
        let cell = comfy_table::Cell::new(printable::line(text));
        // A styled empty text would keep the spaces before it at the end of a line.
        if text.is_empty() {
            return cell;
        }
        let cell = match style.get_fg_color() {
            Some(Color::Ansi(AnsiColor::Green)) => cell.fg(comfy_table::Color::DarkGreen),
            Some(Color::Ansi(AnsiColor::Yellow)) => cell.fg(comfy_table::Color::DarkYellow),
            Some(Color::Ansi(AnsiColor::Red)) => cell.fg(comfy_table::Color::DarkRed),
            _ => cell,
        };
        match style.get_effects() {
            effects if effects.contains(Effects::BOLD) => cell.add_attribute(Attribute::Bold),
            effects if effects.contains(Effects::DIMMED) => cell.add_attribute(Attribute::Dim),
            _ => cell,
        }
    }
}

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

/// A state in its colour.
pub(super) fn state(word: &str) -> Cell {
    Cell(word.to_owned(), super::print::style_of(word))
}

/// A text in the colour of a state.
pub(super) fn marked(text: &str, state: &str) -> Cell {
    Cell(text.to_owned(), super::print::style_of(state))
}

/// A label and a value per line, with a line break after each line. Pairs with an empty value are omitted.
pub fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    pairs_in(pairs, None)
}

fn pairs_in<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>, width: Option<u16>) -> String {
    let mut table = borderless(width);
    for (label, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        // A value may hold styles of its own.
        let value = printable::styled_lines(&value).split_whitespace().collect::<Vec<_>>().join(" ");
        table.add_row(vec![Cell(label.to_owned(), DIM).laid_out(), comfy_table::Cell::new(value)]);
    }
    if table.is_empty() {
        return String::new();
    }
    lay_out(&mut table, &[Column::Whole(""), Column::Wrap("")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table, width: Option<u16>) -> String {
        anstream::adapter::strip_str(&table.render_in(width)).to_string()
    }

    #[test]
    fn columns_align_without_trailing_spaces() {
        let mut table = Table::new([Column::Whole("ID"), Column::Number("N"), Column::Wrap("WHY")]);
        table.row([Cell::from("job_1"), Cell::from(1_200u64), Cell::from("")]);
        table.row([Cell::from("job_22"), Cell::from(3u64), Cell::from("two\nlines")]);
        assert_eq!(plain(&table, None), "ID          N  WHY\njob_1   1,200\njob_22      3  two\\nlines\n");
    }

    #[test]
    fn long_cells_wrap_at_the_width_and_stay_whole_without_one() {
        let mut table = Table::new([Column::Whole("ID"), Column::Wrap("NAME"), Column::Wrap("MESSAGE")]);
        let message = "word ".repeat(40).trim_end().to_owned();
        table.row([Cell::from("x".repeat(40)), Cell::from("n".repeat(20)), Cell::from(message.as_str())]);
        for width in [80, 100, 200] {
            let text = plain(&table, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{text}");
            assert!(text.contains(&"x".repeat(40)), "{text}");
            assert_eq!(text.matches("word").count(), 40, "{text}");
        }
        let whole = plain(&table, None);
        assert_eq!((whole.lines().count(), whole.contains(&message)), (2, true), "{whole}");
    }

    #[test]
    fn columns_that_wrap_keep_a_minimum_width() {
        let mut table = Table::new([Column::Whole("ID"), Column::Wrap("MESSAGE")]);
        table.row([Cell::from("x".repeat(30)), Cell::from("some words of text")]);
        let text = plain(&table, Some(20));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.lines().count() <= 5, "{text}");
    }

    #[test]
    fn long_values_continue_below_themselves() {
        let values = [("a", "word ".repeat(30)), ("empty", String::new()), ("long", "v".into())];
        let text = pairs_in(values.clone(), Some(100));
        let text = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("a     word") && lines[1].starts_with("      word"), "{text}");
        assert_eq!(lines[2], "long  v");
        assert_eq!(pairs_in(values, None).lines().count(), 2);
        assert_eq!(pairs([("empty", String::new())]), "");
    }
}
