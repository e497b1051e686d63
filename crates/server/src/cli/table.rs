//! Tables for a terminal, laid out by `comfy-table`.
//!
//! A table uses the width of the terminal and wraps what does not fit, between words if possible. It has no width limit when
//! standard output is not a terminal or with `--wide`, so that each row is one line.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Color, Effects, Style};
use comfy_table::{Attribute, CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use sluice_domain::event::EventId;
use sluice_domain::printable;

use super::print::{BOLD, DIM};

/// Layout of the columns that wrap.
#[derive(Clone, Copy, Debug)]
struct Wrapping {
    /// Spaces between two columns.
    gap: u16,
    /// Words of texts are broken beyond this width.
    text: u16,
    /// The same for columns of single words, such as names.
    name: u16,
}

const fn wrapping(gap: u16, text: u16, name: u16) -> Wrapping {
    Wrapping { gap, text, name }
}

/// Tried in this order until the table fits: names are broken last.
const WRAPPINGS: [Wrapping; 8] = [
    wrapping(2, 24, 80),
    wrapping(2, 16, 80),
    wrapping(2, 12, 80),
    wrapping(1, 12, 80),
    wrapping(1, 8, 80),
    wrapping(1, 8, 24),
    wrapping(1, 8, 12),
    wrapping(1, 8, 8),
];

/// Words of a column.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// Characters of the longest one.
    longest: u16,
    /// Whether a cell holds several.
    is_text: bool,
}

impl Wrapping {
    /// Minimum width of a column whose widest cell has this width.
    fn minimum(self, column: Column, width: u16, words: Words) -> u16 {
        match column {
            Column::Whole(_) | Column::Number(_) => width,
            Column::Wrap(_) => width.min(words.longest.min(if words.is_text { self.text } else { self.name })),
        }
    }
}

/// Whether rows stay on one line and ids are shown in full. Set from the command line before anything is printed, like the
/// choice of colours.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Lays tables out for `--wide`.
pub fn set_wide() {
    WIDE.store(true, Ordering::Relaxed);
}

/// Columns of the terminal; `None` if rows stay on one line.
pub(super) fn terminal_width() -> Option<u16> {
    if WIDE.load(Ordering::Relaxed) { None } else { comfy_table::Table::new().width() }
}

/// Id as it is shown in a list: the first half of an event id on a terminal. The node accepts it too.
pub(super) fn listed_id(id: &str) -> &str {
    let is_short = std::io::stdout().is_terminal() && !WIDE.load(Ordering::Relaxed);
    if is_short { EventId::shortened(id) } else { id }
}

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
    pub(super) fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, with a line break after each line.
    pub(super) fn render(&self) -> String {
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
        lay_out(&mut table, &self.columns, &self.words())
    }

    fn words(&self) -> Vec<Words> {
        let longest = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
        let of_column = |(index, column): (usize, &Column)| {
            let cells = || self.rows.iter().filter_map(|row| row.get(index)).map(|Cell(text, _)| text.as_str());
            let characters = cells().map(longest).max().unwrap_or(0).max(longest(column.title()));
            Words {
                longest: u16::try_from(characters).unwrap_or(u16::MAX),
                is_text: cells().any(|text| text.trim().contains(char::is_whitespace)),
            }
        };
        self.columns.iter().enumerate().map(of_column).collect()
    }
}

fn borderless(width: Option<u16>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // `print` removes the styles where they are not wanted.
    table.enforce_styling().style_text_only();
    match width {
        Some(width) => {
            table.set_width(width);
        }
        None if WIDE.load(Ordering::Relaxed) => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        None => {}
    }
    table
}

fn lay_out(table: &mut comfy_table::Table, columns: &[Column], words: &[Words]) -> String {
    let widths = table.column_max_content_widths();
    let minimum = |wrapping: Wrapping, index: usize| wrapping.minimum(columns[index], widths[index], words[index]);
    let fits = |wrapping: &Wrapping| {
        let needed: u16 = (0..columns.len()).map(|index| minimum(*wrapping, index) + wrapping.gap).sum();
        table.width().is_none_or(|width| needed.saturating_sub(wrapping.gap) <= width)
    };
    let wrapping = WRAPPINGS.into_iter().find(fits).unwrap_or(WRAPPINGS[WRAPPINGS.len() - 1]);
    for (index, (layout, column)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
        let gap = if index + 1 == columns.len() { 0 } else { wrapping.gap };
        column.set_padding((0, gap));
        column.set_constraint(match layout {
            Column::Whole(_) | Column::Number(_) => ColumnConstraint::ContentWidth,
            Column::Wrap(_) => ColumnConstraint::LowerBoundary(Width::Fixed(minimum(wrapping, index) + gap)),
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
    let any = Words { longest: u16::MAX, is_text: true };
    lay_out(&mut table, &[Column::Whole(""), Column::Wrap("")], &[any, any])
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
    fn words_are_not_broken_while_another_column_can_wrap() {
        let mut table = Table::new([Column::Whole("JOB"), Column::Wrap("TYPE"), Column::Wrap("LAST FAILURE")]);
        let failure = "the destination rejects this request; correct it, then replay the job";
        table.row([Cell::from("job_17"), Cell::from("subscription.created"), Cell::from(failure)]);
        for width in [40, 60, 80, 200] {
            let text = plain(&table, Some(width));
            assert!(text.contains("subscription.created"), "{width}\n{text}");
            assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{width}\n{text}");
        }
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
