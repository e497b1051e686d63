//! Learned shapes of payloads.

use crate::op::{AcceptDrift, KeepShapes};
use crate::record::{EventSeq, ShapeRecord};

use super::Store;

impl Store {
    /// Stores what was learned. `false` if the shapes or the last event are not those that were read.
    pub fn keep_shapes(&mut self, keep: &KeepShapes) -> bool {
        let version = |record: &ShapeRecord| self.shapes.get(&record.key()).map_or(0, |known| known.version);
        if self.payloads_seen != keep.after || keep.shapes.iter().any(|record| version(record) != record.version) {
            return false;
        }
        keep.shapes.iter().for_each(|record| self.write_shape(record.clone()));
        self.payloads_seen = Some(keep.seen);
        true
    }

    /// An operator makes departures the new normal. Returns the number of notices.
    pub fn accept_drift(&mut self, accept: &AcceptDrift) -> u64 {
        let mut accepted = 0;
        for mut record in self.shapes(Some(&accept.source)) {
            let is_meant = accept.is_about(&record.event_type);
            let count = if is_meant { record.shape.accept(accept.path.as_deref()) } else { 0 };
            if count > 0 {
                self.write_shape(record);
                accepted += count;
            }
        }
        if accepted > 0 {
            self.log(accept.at, &accept.actor, "accept", &accept.object(), &accept.reason);
        }
        accepted
    }

    fn write_shape(&mut self, record: ShapeRecord) {
        self.shapes.insert(record.key(), ShapeRecord { version: record.version + 1, ..record });
    }

    /// Shapes by source and type.
    pub fn shapes(&self, source: Option<&String>) -> Vec<ShapeRecord> {
        self.shapes.values().filter(|record| source.is_none_or(|source| record.source == *source)).cloned().collect()
    }

    pub fn payloads_seen(&self) -> Option<EventSeq> {
        self.payloads_seen
    }

    /// Sources with open notices, and how many.
    pub fn drifting_sources(&self) -> Vec<(String, u64)> {
        let mut counts = std::collections::BTreeMap::<String, u64>::new();
        for record in self.shapes.values().filter(|record| !record.shape.notices.is_empty()) {
            *counts.entry(record.source.clone()).or_default() += record.shape.notices.len() as u64;
        }
        counts.into_iter().collect()
    }
}
