//! What steps inside have come to: notes, and marks that only one may set.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::EffectClass;

use super::{EffectRow, JobRow, MarkRow, Store};
use crate::op::{Begin, Mark, Marked, Reply, StepResult};

impl Store {
    /// The job, unless it has moved on without this run.
    fn noting(&mut self, note: &StepResult) -> Option<&mut JobRow> {
        self.jobs.get_mut(&note.job).filter(|job| job.record.state.is_live() && job.record.attempts_total == note.n)
    }

    pub(super) fn note(&mut self, note: StepResult) -> Reply {
        let Some(job) = self.noting(&note) else { return Reply::Stale };
        let kept = job.effects.iter().find(|effect| effect.begin.key == note.key);
        if let Some(kept) = kept {
            return Reply::Noted(kept.result.as_deref().cloned().unwrap_or_default());
        }
        let result = note.result.clone();
        job.effects.push(row_of(note, result.clone()));
        Reply::Noted(result)
    }

    pub(super) fn mark(&mut self, mark: Mark) -> Reply {
        if self.noting(&mark.result).is_none() {
            return Reply::Stale;
        }
        let marked = self.set_mark(&mark);
        let Some(job) = self.noting(&mark.result) else { return Reply::Stale };
        let note = mark.result;
        match job.effects.iter_mut().find(|effect| effect.begin.key == note.key) {
            Some(kept) => {
                (kept.begin.step, kept.begin.n, kept.last_at) = (note.step, note.n, note.at);
                kept.result = Some(Arc::new(marked.output()));
            }
            None => job.effects.push(row_of(note, marked.output())),
        }
        Reply::Marked(marked)
    }

    fn set_mark(&mut self, mark: &Mark) -> Marked {
        for key in std::iter::once(mark.key).chain(mark.adjacent.iter().copied()) {
            let found = self.marks.get(&(mark.store.clone(), key.0)).filter(|found| found.expires_at > mark.result.at);
            match found {
                Some(_) if Mutant::MarkSetTwice.is_on() => {}
                Some(found) if found.owner == mark.result.key && !Mutant::MarkForgetsItsOwner.is_on() => {
                    return Marked { set: true, owner: None };
                }
                Some(found) => return Marked { set: false, owner: Some(found.event) },
                None => {}
            }
        }
        let row =
            MarkRow { owner: mark.result.key, event: mark.event, job: mark.result.job, expires_at: mark.expires_at };
        self.marks.insert((mark.store.clone(), mark.key.0), row);
        Marked { set: true, owner: None }
    }
}

fn row_of(note: StepResult, result: Value) -> EffectRow {
    let (at, state) = (note.at, note.state);
    EffectRow {
        begin: Begin {
            job: note.job,
            n: note.n,
            fence: note.fence,
            step: note.step,
            step_id: note.step_id,
            key: note.key,
            class: EffectClass::Transactional,
            action: note.action,
            destination: "".into(),
            at,
        },
        state,
        attempts: 1,
        absent_reads: 0,
        reads: 0,
        result: Some(Arc::new(result)),
        first_at: at,
        last_at: at,
    }
}
