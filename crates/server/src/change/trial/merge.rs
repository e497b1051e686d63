//! Joins the reports of several parts of the traffic.

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
        self.left_out += other.left_out;
        let mut left_out = 0;
        join(&mut self.outcomes, other.outcomes, &mut left_out);
        join(&mut self.jobs, other.jobs, &mut left_out);
        join(&mut self.fields, other.fields, &mut left_out);
        join(&mut self.writes, other.writes, &mut left_out);
        join(&mut self.warnings, other.warnings, &mut left_out);
        self.left_out += left_out;
    }
}

/// A row of a table of the report.
trait ReportRow {
    fn is_same(&self, other: &Self) -> bool;
    fn add(&mut self, other: Self);
    fn without_contacts(self) -> Self;
    fn count(&self) -> u64;
}

fn join<R: ReportRow>(rows: &mut Vec<R>, others: Vec<R>, left_out: &mut u64) {
    for other in others {
        let has_room = rows.len() < ROWS_MAX;
        match rows.iter_mut().find(|row| row.is_same(&other)) {
            Some(row) => row.add(other.without_contacts()),
            None if has_room => rows.push(other.without_contacts()),
            None => *left_out += other.count(),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.count()));
}

fn add_samples(samples: &mut Vec<Sample>, others: Vec<Sample>) {
    let room = SAMPLES_MAX.saturating_sub(samples.len());
    samples.extend(others.into_iter().take(room));
}

impl ReportRow for OutcomeDifference {
    fn is_same(&self, other: &Self) -> bool {
        (&self.flow, &self.before, &self.after) == (&other.flow, &other.before, &other.after)
    }

    fn add(&mut self, other: Self) {
        self.events += other.events;
        add_samples(&mut self.samples, other.samples);
    }

    fn without_contacts(self) -> Self {
        self
    }

    fn count(&self) -> u64 {
        self.events
    }
}

impl ReportRow for FieldDifferenceRow {
    fn is_same(&self, other: &Self) -> bool {
        (&self.flow, &self.field) == (&other.flow, &other.field)
    }

    fn add(&mut self, other: Self) {
        self.events += other.events;
        add_samples(&mut self.samples, other.samples);
    }

    fn without_contacts(self) -> Self {
        FieldDifferenceRow { contacts: 0, ..self }
    }

    fn count(&self) -> u64 {
        self.events
    }
}

impl ReportRow for WriteDifference {
    fn is_same(&self, other: &Self) -> bool {
        (&self.worker, &self.step, &self.field) == (&other.worker, &other.step, &other.field)
    }

    fn add(&mut self, other: Self) {
        self.events += other.events;
        add_samples(&mut self.samples, other.samples);
    }

    fn without_contacts(self) -> Self {
        WriteDifference { contacts: 0, ..self }
    }

    fn count(&self) -> u64 {
        self.events
    }
}

impl ReportRow for JobDifference {
    fn is_same(&self, other: &Self) -> bool {
        (&self.flow, &self.worker) == (&other.flow, &other.worker)
    }

    fn add(&mut self, other: Self) {
        self.more += other.more;
        self.fewer += other.fewer;
    }

    fn without_contacts(self) -> Self {
        self
    }

    fn count(&self) -> u64 {
        self.more + self.fewer
    }
}

impl ReportRow for WarningDifference {
    fn is_same(&self, other: &Self) -> bool {
        (&self.flow, &self.field, &self.code) == (&other.flow, &other.field, &other.code)
    }

    fn add(&mut self, other: Self) {
        self.more += other.more;
        self.fewer += other.fewer;
    }

    fn without_contacts(self) -> Self {
        self
    }

    fn count(&self) -> u64 {
        self.more + self.fewer
    }
}
