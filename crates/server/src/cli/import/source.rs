//! The file of an import: read once for its order, then row by row.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sluice_domain::flow::DuplicateKeys;
use sluice_domain::import::{ImportRow, ROWS_MAX, RowOrder, RowProblem};
use sluice_domain::key::fingerprint_digest;
use sluice_domain::payload::{self, PayloadProblem};
use sluice_domain::unit::format_size;

use super::rejects::Reject;
use crate::cli::{CliError, exit};

/// Bytes of a row, at most; more than the longest body that a flow accepts by default, by far.
const ROW_BYTES_MAX: usize = 4 * 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Ndjson,
    Csv { delimiter: u8 },
}

/// What the rows are read for.
#[derive(Clone, Debug)]
pub(super) struct RowRules {
    pub format: FileFormat,
    pub flow: String,
    pub time_field: Option<String>,
    /// Of rows that no export wrote.
    pub headers: Vec<(String, String)>,
}

impl RowRules {
    /// Digest of what is imported: the same file with other headers is another import.
    fn digest(&self, mut content: blake3::Hasher) -> String {
        for (name, value) in &self.headers {
            content.update(format!("\0{name}: {value}").as_bytes());
        }
        content.finalize().to_hex().to_string()
    }

    fn row(&self, value: Value) -> Result<ImportRow, Fault> {
        let row = ImportRow::read(value, &self.flow, self.time_field.as_deref())?;
        match row.is_exported {
            true => Ok(row),
            false => Ok(ImportRow { headers: self.headers.clone(), ..row }),
        }
    }
}

/// A row that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPlace {
    order: RowOrder,
    offset: u64,
    bytes: u32,
    /// Number of this content among the rows, from 1.
    pub occurrence: u32,
    content: u64,
}

impl RowPlace {
    pub(super) fn line(&self) -> u64 {
        self.order.line()
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// An indexed file.
pub(super) struct ImportFile {
    path: PathBuf,
    file: File,
    rules: RowRules,
    /// Of a table.
    header: Vec<String>,
    /// In the order of the import.
    pub rows: Vec<RowPlace>,
    /// Rows that cannot be read.
    pub rejects: Vec<Reject>,
    /// Digest of the content and of the headers that rows are given.
    pub digest: String,
}

impl ImportFile {
    /// Reads the whole file: its digest, its order, and the rows that are wrong.
    pub(super) fn open(path: &Path, rules: RowRules) -> Result<ImportFile, CliError> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        if file.metadata().map_err(|error| unreadable(path, &error))?.is_dir() {
            return Err(CliError::new(exit::USAGE, format!("{} is a directory; name a file", path.display())));
        }
        let (header, rows, rejects) = (vec![], vec![], vec![]);
        let mut source =
            ImportFile { path: path.to_owned(), file, rules, header, rows, rejects, digest: String::new() };
        match source.rules.format {
            FileFormat::Ndjson => source.index_lines()?,
            FileFormat::Csv { delimiter } => source.index_table(delimiter)?,
        }
        if source.rows.is_empty() && source.rejects.is_empty() {
            return Err(CliError::new(exit::NO, format!("{} has no rows; nothing was imported", path.display())));
        }
        source.number_contents();
        source.rows.sort_unstable_by_key(|row| row.order);
        Ok(source)
    }

    fn reader(&self, pending: Option<Arc<AtomicU64>>) -> Result<Digesting<File>, CliError> {
        let mut file = self.file.try_clone().map_err(|error| unreadable(&self.path, &error))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(&self.path, &error))?;
        Ok(Digesting { inner: file, hasher: blake3::Hasher::new(), pending })
    }

    fn index_lines(&mut self) -> Result<(), CliError> {
        let mut reader = BufReader::with_capacity(64 * 1024, self.reader(None)?);
        let (mut line, mut offset, mut bytes) = (0, 0, Vec::new());
        loop {
            bytes.clear();
            let length = read_line(&mut reader, &mut bytes).map_err(|error| unreadable(&self.path, &error))?;
            if length == 0 {
                break;
            }
            line += 1;
            let mark = if line == 1 && bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let text = trimmed(&bytes[mark..]);
            if length > ROW_BYTES_MAX as u64 {
                self.rejects.push(too_long(line, text));
            } else if !text.is_empty() {
                let place = (line, offset + mark as u64, text.len());
                self.index(place, text, parse_line(text))?;
            }
            offset += length;
        }
        self.digest = self.rules.digest(reader.into_inner().hasher);
        Ok(())
    }

    fn index_table(&mut self, delimiter: u8) -> Result<(), CliError> {
        let pending: Arc<AtomicU64> = Arc::default();
        let mut reader = table_reader(delimiter, self.reader(Some(pending.clone()))?);
        let mut record = csv::ByteRecord::new();
        let mut header_read = false;
        loop {
            pending.store(0, Ordering::Relaxed);
            let start = reader.position().clone();
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(self.broken_table(&error, start.line())),
            }
            // Blank lines before the record belong to none.
            let start = record.position().cloned().unwrap_or(start);
            let length = reader.position().byte() - start.byte();
            if !header_read {
                self.header = header(&record, delimiter).map_err(|message| {
                    CliError::new(exit::NO, format!("{}, line 1: {message}; nothing was imported", self.path.display()))
                })?;
                header_read = true;
                continue;
            }
            let place = (start.line(), start.byte(), usize::try_from(length).unwrap_or(usize::MAX));
            let shown: Vec<u8> = record.iter().collect::<Vec<_>>().join(&delimiter);
            match length > ROW_BYTES_MAX as u64 {
                true => self.rejects.push(too_long(place.0, &shown)),
                false => self.index(place, &shown, self.parse_record(&record))?,
            }
        }
        if !header_read {
            return Err(CliError::new(exit::NO, format!("{} is empty; nothing was imported", self.path.display())));
        }
        self.digest = self.rules.digest(reader.into_inner().hasher);
        Ok(())
    }

    fn index(
        &mut self,
        (line, offset, bytes): (u64, u64, usize),
        text: &[u8],
        parsed: Result<Value, Fault>,
    ) -> Result<(), CliError> {
        match parsed.and_then(|value| self.rules.row(value)) {
            Ok(row) => {
                let content = fingerprint_digest(&row.payload, &[]);
                let order = RowOrder::new(row.times, row.seq, content, line);
                let content = content_number(content);
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.rows.push(RowPlace { order, offset, bytes, occurrence: 1, content });
            }
            Err(Fault { column, code, reason }) => self.rejects.push(Reject::new(line, column, (code, reason), text)),
        }
        if self.rows.len() > ROWS_MAX {
            let message = format!("{} has more than {ROWS_MAX} rows; split the file", self.path.display());
            return Err(CliError::new(exit::NO, message));
        }
        Ok(())
    }

    /// Numbers rows of the same content, so that each has a key of its own if it has no id.
    fn number_contents(&mut self) {
        let mut seen: HashMap<u64, u32> = HashMap::with_capacity(self.rows.len());
        for row in &mut self.rows {
            let number = seen.entry(row.content).or_default();
            *number += 1;
            row.occurrence = *number;
        }
    }

    /// One row, as it was indexed.
    pub(super) fn read(&mut self, place: RowPlace) -> Result<ImportRow, CliError> {
        let text = self.text(place)?;
        let value = match self.rules.format {
            FileFormat::Ndjson => parse_line(&text),
            FileFormat::Csv { delimiter } => {
                let mut record = csv::ByteRecord::new();
                let _ = table_reader(delimiter, text.as_slice()).read_byte_record(&mut record);
                self.parse_record(&record)
            }
        };
        let row = value.and_then(|value| self.rules.row(value)).ok();
        let is_same = |row: &ImportRow| content_number(fingerprint_digest(&row.payload, &[])) == place.content;
        row.filter(is_same).ok_or_else(|| {
            let message = format!("{} has changed while it was imported; import it again", self.path.display());
            CliError::new(exit::NO, message)
        })
    }

    /// The text of a row.
    pub(super) fn text(&mut self, place: RowPlace) -> Result<Vec<u8>, CliError> {
        let mut text = vec![0; place.bytes as usize];
        let read = self.file.seek(SeekFrom::Start(place.offset)).and_then(|_| self.file.read_exact(&mut text));
        read.map_err(|error| unreadable(&self.path, &error))?;
        Ok(text)
    }

    fn parse_record(&self, record: &csv::ByteRecord) -> Result<Value, Fault> {
        if record.len() != self.header.len() {
            let (found, wanted) = (record.len(), self.header.len());
            return Err(Fault::new("row-ragged", format!("the row has {found} cells, the header has {wanted}")));
        }
        // As in files that were joined.
        let mut names = self.header.iter().zip(record);
        if names.all(|(name, cell)| without_mark(cell).trim_ascii() == name.as_bytes()) {
            return Err(Fault::new("header-repeated", "the row repeats the header".to_owned()));
        }
        let mut cells = Vec::with_capacity(record.len());
        for (column, cell) in self.header.iter().zip(record) {
            let text = std::str::from_utf8(cell).map_err(|error| Fault {
                column: Some(column.clone()),
                ..Fault::new("utf8-invalid", format!("invalid byte at offset {} of the cell", error.valid_up_to()))
            })?;
            cells.push((column.as_str(), text));
        }
        Ok(ImportRow::from_cells(cells)?)
    }

    fn broken_table(&self, error: &csv::Error, line: u64) -> CliError {
        let is_long = matches!(error.kind(), csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::InvalidData);
        let reason = match is_long {
            true => format!(
                "the row that begins in line {line} is longer than {}; a quote is probably not closed",
                format_size(ROW_BYTES_MAX as u64)
            ),
            false => format!("line {line}: {error}"),
        };
        CliError::new(exit::NO, format!("{}: {reason}; nothing was imported", self.path.display()))
    }
}

/// Why a row cannot be read.
struct Fault {
    column: Option<String>,
    code: &'static str,
    reason: String,
}

impl Fault {
    fn new(code: &'static str, reason: String) -> Fault {
        Fault { column: None, code, reason }
    }
}

impl From<RowProblem> for Fault {
    fn from(problem: RowProblem) -> Fault {
        Fault { column: problem.column().map(str::to_owned), ..Fault::new(problem.code(), problem.to_string()) }
    }
}

fn parse_line(text: &[u8]) -> Result<Value, Fault> {
    payload::parse_json(text, DuplicateKeys::Refuse).map_err(|problem| {
        let code = problem.code();
        match problem {
            PayloadProblem::Utf8 { offset } => {
                Fault { column: Some((offset + 1).to_string()), ..Fault::new(code, "the row is not UTF-8".to_owned()) }
            }
            PayloadProblem::Json(message) => {
                let (reason, column) = match message.rsplit_once(" at line 1 column ") {
                    Some((reason, column)) => (reason.to_owned(), Some(column.to_owned())),
                    None => (message, None),
                };
                Fault { column, ..Fault::new(code, format!("the row is not JSON: {reason}")) }
            }
            other => Fault::new(code, other.to_string().replacen("the body", "the row", 1)),
        }
    })
}

fn without_mark(cell: &[u8]) -> &[u8] {
    cell.strip_prefix(BYTE_ORDER_MARK).unwrap_or(cell)
}

/// The content of a row as it is compared with other rows of the file.
fn content_number(fingerprint: [u8; 16]) -> u64 {
    fingerprint.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Names of the columns.
fn header(record: &csv::ByteRecord, delimiter: u8) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::with_capacity(record.len());
    for (place, cell) in (1..).zip(record) {
        let cell = if place == 1 { without_mark(cell) } else { cell };
        let name = std::str::from_utf8(cell).map_err(|_| format!("the name of column {place} is not UTF-8"))?.trim();
        if name.is_empty() {
            return Err(format!("column {place} has no name"));
        }
        if let Some(first) = names.iter().position(|other| other == name) {
            return Err(format!("columns {} and {place} have the same name `{name}`", first + 1));
        }
        names.push(name.to_owned());
    }
    let other = if delimiter == b';' { ',' } else { ';' };
    match names.as_slice() {
        [only] if only.contains([other, '\t']) => {
            Err(format!("the header has one column, `{only}`; use --delimiter if cells are not separated by commas"))
        }
        _ => Ok(names),
    }
}

fn table_reader<R: Read>(delimiter: u8, input: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(input)
}

/// Reads a line with its end. Of a line that is too long only the beginning is kept. Returns its length.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<u64> {
    let mut length = 0;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(length);
        }
        let end = available.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() <= ROW_BYTES_MAX {
            line.extend_from_slice(part);
        }
        let used = part.len();
        length += used as u64;
        reader.consume(used);
        if end.is_some() {
            return Ok(length);
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii_end()
}

fn too_long(line: u64, text: &[u8]) -> Reject {
    let reason = format!("the row is longer than {}", format_size(ROW_BYTES_MAX as u64));
    Reject::new(line, None, ("row-too-long", reason), text)
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::new(exit::UNAVAILABLE, format!("{} cannot be read: {error}", path.display()))
}

/// Computes the digest of what is read.
struct Digesting<R> {
    inner: R,
    hasher: blake3::Hasher,
    /// Bytes since the last row of a table. Reading fails if they are far too many: a quote is not closed, and the rest of the file
    /// would be one cell.
    pending: Option<Arc<AtomicU64>>,
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        if let Some(pending) = &self.pending
            && pending.fetch_add(read as u64, Ordering::Relaxed) > 4 * ROW_BYTES_MAX as u64
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(read)
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
