//! Drift: the shape of a sender's payloads is learned, and what departs from it raises a notice.
//!
//! [`Shape::learn`] is the step: a shape and a sample give the next shape and new notices. It is bounded in memory whatever a
//! sender sends, and a stored shape continues where it was. Values are kept only where they are few, short, frequent and not
//! those of a person.

mod field;
mod notice;
mod personal;
mod sample;
mod shape;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::time::Time;
pub use field::{FieldShape, FieldType, FieldTypes};
pub use notice::{Notice, NoticeKind};
pub use personal::MappedPersonalPaths;
pub use shape::{LEARNED_AFTER, NOTICE_AGE_MAX, NOTICES_MAX, PATHS_MAX, Shape};

/// Types of events of one source whose shapes are learned; senders may choose them.
pub const TYPES_MAX: usize = 20;
/// Shapes in all.
pub const SHAPES_MAX: usize = 200;

/// A payload of a source.
#[derive(Clone, Copy, Debug)]
pub struct PayloadSample<'a> {
    pub payload: &'a Value,
    /// Arrival of its request.
    pub at: Time,
    /// Paths whose values are those of a person, beside the ones that their names denote.
    pub personal: &'a dyn PersonalPaths,
}

/// Says which paths of a payload hold values of a person.
pub trait PersonalPaths: std::fmt::Debug {
    fn is_personal(&self, path: &str) -> bool;
}

/// No path but those that their names denote.
#[derive(Clone, Copy, Debug)]
pub struct ByNameAlone;

impl PersonalPaths for ByNameAlone {
    fn is_personal(&self, _: &str) -> bool {
        false
    }
}

/// The shapes of every source, by source and type of event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shapes {
    pub shapes: BTreeMap<(String, String), Shape>,
}

/// What a sample has changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// Notices that the sample has raised.
    pub notices: Vec<Notice>,
    /// Members of the payload itself that were never seen before.
    pub new_members: Vec<String>,
    /// Whether a notice was raised or closed.
    pub is_urgent: bool,
}

impl Shapes {
    /// Learns a sample. `None` if its source has too many types of events, or there are too many shapes.
    pub fn learn(&mut self, source: &str, event_type: &str, sample: PayloadSample<'_>) -> Option<Learned> {
        let key = (source.to_owned(), event_type.to_owned());
        if !self.shapes.contains_key(&key) {
            let of_source = self.shapes.keys().filter(|(of, _)| of == source).count();
            if of_source >= TYPES_MAX || self.shapes.len() >= SHAPES_MAX {
                return None;
            }
        }
        Some(self.shapes.entry(key).or_default().learn(sample))
    }
}
