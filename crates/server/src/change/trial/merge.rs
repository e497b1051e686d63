//! Joins the reports of several parts of the traffic.

use std::cmp::Reverse;

use super::report::{
    FieldDifferenceRow, JobDifference, OutcomeDifference, Sample, TrialReport, WarningDifference, WriteDifference,
};
use super::rows::{ROWS_MAX, SAMPLES_MAX};

impl TrialReport {
    /// Adds the report of further requests. Contacts are not counted: the same ones may be in both.
    pub(crate) fn merge(&mut self, other: TrialReport) {
        self.events += other.events;
        self.different += other.different;
        self.bodies_removed += other.bodies_removed;
        self.unreadable += other.unreadable;
        self.other_keys += other.other_keys;
        let left_out = [
            join(&mut self.outcomes, other.outcomes),
            join(&mut self.jobs, other.jobs),
            join(&mut self.fields, other.fields),
            join(&mut self.writes, other.writes),
            join(&mut self.warnings, other.warnings),
        ];
        self.left_out += other.left_out + left_out.iter().sum::<u64>();
    }
}

/// A row of a table of the report.
trait ReportRow {
    /// Rows with the same key are one.
    fn key(&self) -> [&str; 3];
    fn sums(&mut self) -> Sums<'_>;
}

/// What is added up in a row.
struct Sums<'r> {
    /// Requests; or jobs and conversions, more and fewer.
    counts: [Option<&'r mut u64>; 2],
    contacts: Option<&'r mut u64>,
    samples: Option<&'r mut Vec<Sample>>,
}

impl<'r> Sums<'r> {
    fn of_events(events: &'r mut u64, samples: &'r mut Vec<Sample>) -> Sums<'r> {
        Sums { counts: [Some(events), None], contacts: None, samples: Some(samples) }
    }

    fn of_changes(more: &'r mut u64, fewer: &'r mut u64) -> Sums<'r> {
        Sums { counts: [Some(more), Some(fewer)], contacts: None, samples: None }
    }

    fn count(&self) -> u64 {
        self.counts.iter().flatten().map(|count| **count).sum()
    }

    fn add(self, other: Sums<'_>) {
        for (count, more) in self.counts.into_iter().flatten().zip(other.counts.into_iter().flatten()) {
            *count += *more;
        }
        if let (Some(samples), Some(others)) = (self.samples, other.samples) {
            let room = SAMPLES_MAX.saturating_sub(samples.len()).min(others.len());
            samples.extend(others.drain(..room));
        }
    }
}

/// Joins two tables, the largest rows first. Returns what the rows without room count.
fn join<R: ReportRow>(rows: &mut Vec<R>, others: Vec<R>) -> u64 {
    let mut left_out = 0;
    for mut other in others {
        if let Some(contacts) = other.sums().contacts {
            *contacts = 0;
        }
        let has_room = rows.len() < ROWS_MAX;
        match rows.iter_mut().find(|row| row.key() == other.key()) {
            Some(row) => row.sums().add(other.sums()),
            None if has_room => rows.push(other),
            None => left_out += other.sums().count(),
        }
    }
    let mut counted: Vec<(u64, R)> = rows.drain(..).map(|mut row| (row.sums().count(), row)).collect();
    counted.sort_by_key(|(count, _)| Reverse(*count));
    rows.extend(counted.into_iter().map(|(_, row)| row));
    left_out
}

impl ReportRow for OutcomeDifference {
    fn key(&self) -> [&str; 3] {
        [&self.flow, &self.before, &self.after]
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums::of_events(&mut self.events, &mut self.samples)
    }
}

impl ReportRow for FieldDifferenceRow {
    fn key(&self) -> [&str; 3] {
        [&self.flow, &self.field, ""]
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums { contacts: Some(&mut self.contacts), ..Sums::of_events(&mut self.events, &mut self.samples) }
    }
}

impl ReportRow for WriteDifference {
    fn key(&self) -> [&str; 3] {
        [&self.worker, &self.step, &self.field]
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums { contacts: Some(&mut self.contacts), ..Sums::of_events(&mut self.events, &mut self.samples) }
    }
}

impl ReportRow for JobDifference {
    fn key(&self) -> [&str; 3] {
        [&self.flow, &self.worker, ""]
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums::of_changes(&mut self.more, &mut self.fewer)
    }
}

impl ReportRow for WarningDifference {
    fn key(&self) -> [&str; 3] {
        [&self.flow, &self.field, &self.code]
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums::of_changes(&mut self.more, &mut self.fewer)
    }
}
