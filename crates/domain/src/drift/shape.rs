//! The learned shape of the payloads of one source and type.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::field::FieldShape;
use super::notice::{Notice, NoticeKind};
use super::sample::{Found, fields, is_inside, parent};
use super::{Learned, PayloadSample};
use crate::mask;
use crate::time::Time;

/// Samples before departures are noticed.
pub const LEARNED_AFTER: u64 = 100;
/// Fields of a shape. Further ones are counted.
pub const PATHS_MAX: usize = 256;
/// Open notices of a shape. Further departures are counted.
pub const NOTICES_MAX: usize = 32;
/// A notice that is not decided for this long becomes the new normal.
pub const NOTICE_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Members of an object that are told apart. With more of them the object is a map: its names are data.
const MEMBERS_MAX: usize = 40;
/// A field that fewer samples had cannot vanish, in percent.
const RATE_PERCENT_MIN: f64 = 5.0;
/// Samples without a field before it has vanished, and how many of them would have had it.
const ABSENT_MIN: u32 = 30;
const EXPECTED_MIN: f64 = 20.0;

/// The learned shape of the payloads of one source and type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub samples: u64,
    pub fields: BTreeMap<String, FieldShape>,
    /// Objects whose names are data.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub maps: BTreeSet<String>,
    /// Open notices, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// Fields and departures beyond the limits.
    #[serde(default)]
    pub left_out: u64,
}

impl Shape {
    /// Whether departures are noticed.
    pub fn is_learned(&self) -> bool {
        self.samples >= LEARNED_AFTER
    }

    /// Learns a sample.
    pub fn learn(&mut self, sample: PayloadSample<'_>) -> Learned {
        let before = self.notices.len();
        self.expire(sample.at);
        let mut learned = Learned { is_urgent: self.notices.len() != before, ..Learned::default() };
        let found = fields(sample.payload, &self.maps);
        for (path, field) in &found {
            match self.fields.contains_key(path) {
                true => self.see(path, *field, sample, &mut learned),
                false => self.add(path, *field, sample, &mut learned),
            }
        }
        self.miss(&found, sample.at, &mut learned);
        self.samples += 1;
        self.find_maps();
        learned.is_urgent |= !learned.notices.is_empty();
        learned
    }

    fn see(&mut self, path: &str, found: Found<'_>, sample: PayloadSample<'_>, learned: &mut Learned) {
        let is_learned = self.is_learned();
        let is_personal = is_personal(path, sample);
        let Some(field) = self.fields.get_mut(path) else { return };
        field.see(Some(found.first), is_personal);
        let was_vanished = std::mem::take(&mut field.is_vanished);
        let (from, to) = (field.types, found.types.without(field.types).without(field.noticed));
        if !to.is_empty() && (!is_learned || field.is_new) {
            field.types = field.types.union(to);
        }
        let is_retyped = !to.is_empty() && is_learned && !field.is_new;
        if is_retyped {
            field.noticed = field.noticed.union(to);
        }
        if was_vanished {
            self.notices.retain(|notice| notice.path != path || !matches!(notice.kind, NoticeKind::Vanished { .. }));
            learned.is_urgent = true;
        }
        if is_retyped {
            let example = example(path, found, is_personal);
            self.raise(
                Notice { path: path.to_owned(), kind: NoticeKind::Retyped { from, to }, at: sample.at, example },
                learned,
            );
        }
    }

    fn add(&mut self, path: &str, found: Found<'_>, sample: PayloadSample<'_>, learned: &mut Learned) {
        if self.fields.len() >= PATHS_MAX {
            self.left_out += 1;
            return;
        }
        let is_new = self.is_learned();
        let is_personal = is_personal(path, sample);
        let mut field = FieldShape::default();
        (field.types, field.is_new) = (found.types, is_new);
        // The samples before did not have it.
        field.samples = u32::try_from(self.samples.min(1_000)).unwrap_or(0) * u32::from(!is_new);
        field.see(Some(found.first), is_personal);
        self.fields.insert(path.to_owned(), field);
        let inside = parent(path);
        if inside.is_empty() {
            learned.new_members.push(path.to_owned());
        }
        // What is inside of a new object has appeared with it, and so has what is inside of text that became an object.
        let is_usual = |parent: &FieldShape| !parent.is_new && parent.noticed.is_empty();
        let is_top = inside.is_empty() || self.fields.get(inside).is_some_and(is_usual);
        if is_new && is_top {
            let example = example(path, found, is_personal);
            self.raise(Notice { path: path.to_owned(), kind: NoticeKind::Appeared, at: sample.at, example }, learned);
        }
    }

    /// Counts the absence of known fields.
    fn miss(&mut self, found: &BTreeMap<String, Found<'_>>, at: Time, learned: &mut Learned) {
        let is_learned = self.is_learned();
        let mut gone: Vec<(String, u8)> = Vec::new();
        for (path, field) in self.fields.iter_mut().filter(|(path, _)| !found.contains_key(*path)) {
            let rate = field.rate();
            field.miss();
            let expected = f64::from(field.absent_run) * rate;
            let is_gone =
                field.absent_run >= ABSENT_MIN && expected >= EXPECTED_MIN && rate * 100.0 >= RATE_PERCENT_MIN;
            if is_learned && is_gone && !field.is_new && !field.is_vanished {
                gone.push((path.clone(), (rate * 100.0).round() as u8));
            }
        }
        for (path, percent) in gone {
            let above = parent(&path);
            // What is inside of a vanished object has vanished with it.
            let is_with_its_object = self.fields.get(above).is_some_and(|parent| parent.is_vanished);
            if let Some(field) = self.fields.get_mut(&path) {
                field.is_vanished = true;
            }
            if !is_with_its_object {
                let kind = NoticeKind::Vanished { percent };
                self.raise(Notice { path, kind, at, example: String::new() }, learned);
            }
        }
    }

    fn raise(&mut self, notice: Notice, learned: &mut Learned) {
        if self.notices.len() >= NOTICES_MAX {
            self.left_out += 1;
            return;
        }
        learned.notices.push(notice.clone());
        self.notices.push(notice);
    }

    /// Joins the members of an object that has too many of them: its names are data.
    fn find_maps(&mut self) {
        let mut members: BTreeMap<&str, usize> = BTreeMap::new();
        for path in self.fields.keys().filter(|path| !path.ends_with("[]")) {
            *members.entry(parent(path)).or_default() += 1;
        }
        let large = members.into_iter().filter(|(object, count)| !object.is_empty() && *count > MEMBERS_MAX);
        let Some(object) = large.map(|(object, _)| object.to_owned()).next() else { return };
        self.fields.retain(|path, _| !is_inside(path, &object));
        self.notices.retain(|notice| !is_inside(&notice.path, &object));
        self.maps.insert(object);
    }

    /// Old notices become the new normal.
    fn expire(&mut self, now: Time) {
        let old = |notice: &&Notice| now.since(notice.at) >= NOTICE_AGE_MAX;
        let paths: Vec<String> = self.notices.iter().filter(old).map(|notice| notice.path.clone()).collect();
        for path in paths {
            self.accept(Some(&path));
        }
    }

    /// Makes what notices say the new normal: those about a path, or all. Returns their number.
    pub fn accept(&mut self, path: Option<&str>) -> u64 {
        let is_meant = |notice: &Notice| path.is_none_or(|path| notice.path == path);
        let (accepted, kept) = std::mem::take(&mut self.notices).into_iter().partition(is_meant);
        self.notices = kept;
        let accepted: Vec<Notice> = accepted;
        for notice in &accepted {
            let is_about = |path: &str| path == notice.path || is_inside(path, &notice.path);
            match notice.kind {
                NoticeKind::Vanished { .. } => self.fields.retain(|path, field| !(is_about(path) && field.is_vanished)),
                NoticeKind::Appeared => {
                    self.fields
                        .iter_mut()
                        .filter(|(path, _)| is_about(path))
                        .for_each(|(_, field)| field.is_new = false);
                }
                NoticeKind::Retyped { to, .. } => {
                    if let Some(field) = self.fields.get_mut(&notice.path) {
                        (field.types, field.noticed) = (field.types.union(to), field.noticed.without(to));
                    }
                    let inside = self.fields.iter_mut().filter(|(path, _)| is_inside(path, &notice.path));
                    inside.for_each(|(_, field)| field.is_new = false);
                }
            }
        }
        accepted.len() as u64
    }
}

fn is_personal(path: &str, sample: PayloadSample<'_>) -> bool {
    mask::is_personal_path(path) || mask::is_secret_name(path) || sample.personal.is_personal(path)
}

/// An example of a value that shows nothing of a person.
fn example(path: &str, found: Found<'_>, is_personal: bool) -> String {
    match is_personal && !mask::is_secret_name(path) {
        // Under this name only the form of the value is shown.
        true => mask::sample("identity", found.first),
        false => mask::sample(path, found.first),
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
