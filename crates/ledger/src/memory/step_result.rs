//! Results of internal steps, and marks.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::EffectClass;

use super::{EffectRow, JobRow, MarkRow, Store};
use crate::fence::JobGuard;
use crate::op::{Begin, Mark, Marked, StepResult, StepWarning};

impl Store {
    /// The job of a run; `None` if the run is stale.
    fn current_run(&mut self, result: &StepResult) -> Option<&mut JobRow> {
        let job = self.jobs.get_mut(&result.job)?;
        JobGuard::from(&job.record).is_idle(result.n, result.fence).then_some(job)
    }

    /// Records the result of an internal step, with its warning, and returns the recorded one. `None` if the run is stale.
    pub fn record_step(&mut self, result: StepResult) -> Option<Value> {
        let job = self.current_run(&result)?;
        if let Some(first) = job.effects.iter_mut().find(|effect| effect.begin.key == result.key) {
            if Mutant::LookupMadeAgain.is_on() {
                first.result = Some(Arc::new(result.result));
            }
            return Some(first.result.as_deref().cloned().unwrap_or_default());
        }
        let (output, at, warning) = (result.result.clone(), result.at, result.warning.clone());
        job.effects.push(effect_of(result, output.clone()));
        if let Some(StepWarning { source, warning }) = warning.map(|warning| *warning) {
            let (count, last_at) = self.mapping_warnings.entry((source, warning)).or_default();
            (*count, *last_at) = (*count + 1, at);
        }
        Some(output)
    }

    /// Sets a mark unless another job has. `None` if the run is stale.
    pub fn set_mark(&mut self, mark: Mark) -> Option<Marked> {
        self.current_run(&mark.result)?;
        let marked = self.claim_mark(&mark);
        let job = self.current_run(&mark.result)?;
        let result = mark.result;
        match job.effects.iter_mut().find(|effect| effect.begin.key == result.key) {
            Some(first) => {
                (first.begin.step, first.begin.n, first.last_at) = (result.step, result.n, result.at);
                first.result = Some(Arc::new(marked.output()));
            }
            None => job.effects.push(effect_of(result, marked.output())),
        }
        Some(marked)
    }

    fn claim_mark(&mut self, mark: &Mark) -> Marked {
        for key in std::iter::once(mark.key).chain(mark.adjacent.iter().copied()) {
            let found = self.marks.get(&(mark.store.clone(), key.0)).filter(|found| found.expires_at > mark.result.at);
            if let Some(owned) = found.and_then(|found| mark.owned_by(found.owner, found.event)) {
                return owned;
            }
        }
        let row =
            MarkRow { owner: mark.result.key, event: mark.event, job: mark.result.job, expires_at: mark.expires_at };
        self.marks.insert((mark.store.clone(), mark.key.0), row);
        Marked::SET
    }
}

fn effect_of(result: StepResult, output: Value) -> EffectRow {
    let (at, state) = (result.at, result.state);
    EffectRow {
        begin: Begin {
            job: result.job,
            n: result.n,
            fence: result.fence,
            step: result.step,
            step_id: result.step_id,
            key: result.key,
            class: EffectClass::Transactional,
            action: result.action,
            destination: "".into(),
            identity: None,
            at,
        },
        state,
        attempts: 1,
        absent_reads: 0,
        reads: 0,
        result: Some(Arc::new(output)),
        first_at: at,
        last_at: at,
    }
}
