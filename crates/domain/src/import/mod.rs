//! Imports: history that an operator feeds through a flow.
//!
//! An import is a file, a flow and a place in the order of its rows. Its id follows from the file and the flow, so that the same
//! command continues what was stopped. A batch of rows and the place behind it are one commit.

mod row;

use std::fmt;
use std::time::Duration;

use crate::contact::CLOCK_SKEW_MAX;
use crate::digest::{DigestContext, write_parts};
use crate::event::BASE32;
use crate::key::{DerivedKey, KEY_BYTES_MAX};
use crate::time::Time;

pub use row::{EVENT_FORM, ImportRow, RowProblem, RowTimes, formula_escaped, formula_unescaped};

/// Rows of one batch, at most.
pub const BATCH_ROWS_MAX: usize = 500;
/// Rows of one import, at most: their order is kept in memory.
pub const ROWS_MAX: usize = 10_000_000;
/// Jobs that wait or run before an import pauses: requests that senders make meanwhile wait behind so many jobs at the most.
pub const BACKLOG_MAX: u64 = 1_000;
/// How long an import pauses before it looks at the backlog again.
pub const BACKLOG_PAUSE: Duration = Duration::from_millis(200);

/// Names an import. Derived from the flow, the content of the file and the field that orders its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportId(pub [u8; 16]);

impl ImportId {
    /// `content` is a digest of the file.
    pub fn new(flow: &str, content: &str, time_field: Option<&str>) -> ImportId {
        static CONTEXT: DigestContext = DigestContext::new("sluice import");
        ImportId(CONTEXT.of(|hasher| write_parts(hasher, &[flow, content, time_field.unwrap_or_default()])))
    }

    /// Parses `imp_…`.
    pub fn parse(text: &str) -> Option<ImportId> {
        BASE32.decode(text.trim().strip_prefix("imp_")?.as_bytes()).ok()?.try_into().ok().map(ImportId)
    }

    /// What the events of the import were verified by: the operator who started it.
    pub fn verified_by(self) -> String {
        format!("import:{self}")
    }
}

impl fmt::Display for ImportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imp_{}", BASE32.encode_display(&self.0))
    }
}

impl fmt::Debug for ImportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// State of an import. `Done` is final; a cancelled import continues when it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    Running,
    Cancelled,
    Done,
}

impl ImportState {
    pub const ALL: [ImportState; 3] = [ImportState::Running, ImportState::Cancelled, ImportState::Done];

    pub fn as_str(self) -> &'static str {
        match self {
            ImportState::Running => "running",
            ImportState::Cancelled => "cancelled",
            ImportState::Done => "done",
        }
    }

    pub fn parse(word: &str) -> Option<ImportState> {
        ImportState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state of an import that is started again.
    pub fn restarted(self) -> ImportState {
        match self {
            ImportState::Running | ImportState::Cancelled => ImportState::Running,
            ImportState::Done => ImportState::Done,
        }
    }
}

/// What became of the rows of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// New events, those in quarantine not included.
    pub accepted: u64,
    pub duplicates: u64,
    /// New events whose jobs are dead letters from the start.
    pub quarantined: u64,
    /// Rows that made no event.
    pub refused: u64,
}

impl ImportCounts {
    pub fn total(self) -> u64 {
        self.accepted + self.duplicates + self.quarantined + self.refused
    }
}

impl std::ops::AddAssign for ImportCounts {
    fn add_assign(&mut self, other: ImportCounts) {
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        self.quarantined += other.quarantined;
        self.refused += other.refused;
    }
}

/// The place of a row in the order of its import: by time, then as they were accepted, then by content, so that the order in which
/// a file lists its rows does not matter. Rows without a time come first, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowOrder {
    time: Option<Time>,
    seq: i64,
    content: u64,
    line: u64,
}

impl RowOrder {
    pub fn new(times: RowTimes, seq: Option<i64>, content: [u8; 16], line: u64) -> RowOrder {
        let time = times.arrival();
        let content = u64::from_be_bytes(content[..8].try_into().expect("eight of sixteen bytes"));
        match time {
            Some(_) => RowOrder { time, seq: seq.unwrap_or(i64::MAX), content, line },
            None => RowOrder { time, seq: 0, content: 0, line },
        }
    }

    pub fn line(self) -> u64 {
        self.line
    }
}

/// When the event of a row happened: as the flow maps it, or as the row says. Never the time of the import. A time that is later
/// than the arrival of the row, or than now, counts as that with the tolerance that live requests have.
pub fn occurred_at(mapped: Option<Time>, times: RowTimes, now: Time) -> Option<Time> {
    let stated = mapped.or(times.occurred_at).or(times.received_at)?;
    let arrival = times.received_at.map_or(now, |received_at| received_at.min(now));
    Some(stated.min(arrival + CLOCK_SKEW_MAX))
}

/// When what a row says about its contact counts as said. One without a time is older than everything that has one: the time of the
/// import would let old values win over newer ones.
pub fn observed_at(occurred_at: Option<Time>) -> Time {
    occurred_at.unwrap_or(Time(0))
}

/// The key of a row from which the flow derives none: that of the event it was exported from, or its content and how often that
/// has occurred in the file. A second import of the same rows, in any order, finds the same keys.
pub fn fallback_key(exported: Option<&str>, fingerprint: [u8; 16], occurrence: u32) -> DerivedKey {
    let is_key = |key: &&str| !key.trim().is_empty() && key.len() <= KEY_BYTES_MAX;
    match exported.filter(is_key) {
        Some(key) => DerivedKey::of_content(key.to_owned(), &[]),
        None => {
            let content = data_encoding::HEXLOWER.encode(&fingerprint);
            DerivedKey::of_content(format!("import|{content}|{occurrence}"), &[])
        }
    }
}

/// How long an import waits before its next batch, with so many jobs waiting or running.
pub fn pause(backlog: u64) -> Option<Duration> {
    (backlog >= BACKLOG_MAX).then_some(BACKLOG_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(occurred_at: Option<i64>, received_at: Option<i64>) -> RowTimes {
        RowTimes { occurred_at: occurred_at.map(Time), received_at: received_at.map(Time) }
    }

    #[test]
    fn ids_follow_from_flow_content_and_order() {
        let id = ImportId::new("leads", "abc", None);
        assert_eq!(ImportId::parse(&id.to_string()), Some(id));
        for other in [
            ImportId::new("leads2", "abc", None),
            ImportId::new("leads", "abd", None),
            ImportId::new("leads", "abc", Some("at")),
            ImportId::new("lead", "sabc", None),
        ] {
            assert_ne!(other, id);
        }
        assert_eq!(ImportId::parse("imp_1"), None);
        assert!(id.verified_by().starts_with("import:imp_"));
    }

    #[test]
    fn a_cancelled_import_can_be_started_again_and_a_finished_one_stays_finished() {
        for state in ImportState::ALL {
            assert_eq!(ImportState::parse(state.as_str()), Some(state));
        }
        assert_eq!(ImportState::Cancelled.restarted(), ImportState::Running);
        assert_eq!(ImportState::Done.restarted(), ImportState::Done);
    }

    #[test]
    fn the_order_of_the_file_does_not_matter_where_rows_have_times() {
        let row =
            |time: Option<i64>, seq, content: u8, line| RowOrder::new(times(None, time), seq, [content; 16], line);
        let mut rows = vec![row(Some(5), None, 1, 1), row(Some(5), Some(2), 9, 2), row(Some(3), None, 7, 3)];
        rows.extend([row(None, None, 9, 4), row(None, None, 1, 5), row(Some(5), None, 0, 6)]);
        rows.sort();
        let lines: Vec<u64> = rows.iter().map(|row| row.line()).collect();
        assert_eq!(lines, [4, 5, 3, 2, 6, 1]);
    }

    #[test]
    fn the_time_of_the_import_is_never_the_time_of_the_event() {
        let now = Time(10_000_000);
        let skew = CLOCK_SKEW_MAX.as_millis() as i64;
        for (mapped, row, expected) in [
            (Some(5), times(Some(7), Some(9)), Some(5)),
            (None, times(Some(7), Some(9)), Some(7)),
            (None, times(None, Some(9)), Some(9)),
            (None, times(None, None), None),
            (Some(9_000_000), times(None, Some(9)), Some(9 + skew)),
            (Some(99_000_000), times(None, None), Some(now.0 + skew)),
            (Some(99_000_000), times(None, Some(98_000_000)), Some(now.0 + skew)),
        ] {
            assert_eq!(occurred_at(mapped.map(Time), row, now), expected.map(Time), "{mapped:?} {row:?}");
        }
        assert_eq!((observed_at(Some(Time(5))), observed_at(None)), (Time(5), Time(0)));
    }

    #[test]
    fn rows_without_an_id_are_told_apart_by_their_number() {
        let key = |occurrence| fallback_key(None, [1; 16], occurrence).text;
        assert_eq!(key(1), "import|01010101010101010101010101010101|1");
        assert_ne!(key(1), key(2));
        assert_eq!(fallback_key(Some("a|b"), [1; 16], 2).text, "a|b");
        for none in ["", " ", &"x".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(fallback_key(Some(none), [1; 16], 1).text, key(1));
        }
    }

    #[test]
    fn an_import_pauses_while_jobs_wait() {
        assert_eq!((pause(BACKLOG_MAX - 1), pause(BACKLOG_MAX)), (None, Some(BACKLOG_PAUSE)));
    }
}
