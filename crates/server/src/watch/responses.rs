//! Response clocks: tells a person when the answer to an event is at risk.

use sluice_domain::event::Event;
use sluice_domain::respond::{
    DueResponse, ResponseClock, ResponseCommand, ResponseRule, ResponseState, commands, escalation,
};
use sluice_domain::time::Time;
use sluice_ledger::NewEvent;

use super::Watch;
use crate::revisions::LoadedRevision;

/// Clocks that are read at once.
const DUE_MAX: u32 = 256;
/// Reads of one look; the rest waits for the next one.
const ROUNDS_MAX: u32 = 64;

impl Watch {
    /// Looks at every clock that is due. A clock that cannot be written keeps no other from being looked at.
    pub(super) async fn watch_responses(&self, live: &LoadedRevision) -> Result<(), sluice_ledger::Error> {
        for _ in 0..ROUNDS_MAX {
            let now = self.clock.ledger_time();
            let due = self.ledger.due_responses(now, DUE_MAX).await?;
            let mut looked = Ok(());
            for clock in &due {
                looked = looked.and(self.watch_response(clock, live, now).await);
            }
            looked?;
            if due.len() < DUE_MAX as usize {
                break;
            }
        }
        Ok(())
    }

    async fn watch_response(
        &self,
        due: &DueResponse,
        live: &LoadedRevision,
        now: Time,
    ) -> Result<(), sluice_ledger::Error> {
        let flow = live.config.flows.get(&*due.clock.flow);
        let rule = flow.and_then(|flow| flow.respond.as_ref());
        for command in commands(due, rule.is_some(), now) {
            self.perform_response(command, rule, live).await?;
        }
        Ok(())
    }

    /// The flows with late answers, and how many.
    pub(super) async fn late_responses(&self) -> Result<Vec<(String, u64)>, sluice_ledger::Error> {
        let counts = self.ledger.response_counts().await?;
        self.metrics.responses_running(&counts);
        let late = counts.iter().filter(|count| count.state == ResponseState::Late);
        Ok(late.map(|count| (count.flow.to_string(), count.count)).collect())
    }

    async fn perform_response(
        &self,
        command: ResponseCommand,
        rule: Option<&ResponseRule>,
        live: &LoadedRevision,
    ) -> Result<(), sluice_ledger::Error> {
        match command {
            ResponseCommand::Escalate(clock) => {
                let Some(rule) = rule else { return Ok(()) };
                let event = self.escalation_event(&clock, rule, live).await?;
                self.ledger.accept(event).await?;
                tracing::warn!(flow = &*clock.flow, event = %clock.event_id, "the response to an event is at risk");
            }
            ResponseCommand::Keep(change) => {
                let (flow, state) = (change.clock.flow.clone(), change.clock.state);
                let took = change.took;
                if self.ledger.keep_response(change).await? && !state.is_open() {
                    self.metrics.response_ended(&flow, state.as_str());
                    if let Some(took) = took {
                        self.metrics.history.responded(&flow, took);
                    }
                }
            }
        }
        Ok(())
    }

    /// The event that tells a person. It belongs to the contact of the lead: what it says is erased with that contact.
    async fn escalation_event(
        &self,
        clock: &ResponseClock,
        rule: &ResponseRule,
        live: &LoadedRevision,
    ) -> Result<NewEvent, sluice_ledger::Error> {
        let now = self.clock.ledger_time();
        let body = self.ledger.events(vec![clock.event]).await?.pop().and_then(|(_, body)| body);
        let scope = body.as_ref().and_then(|body| body.scope(clock.event_id).ok());
        let contact = body.and_then(|body| serde_json::from_str::<Event>(&body.normalized).ok()?.contact());
        let notice = escalation(clock, rule, scope.as_deref(), now);
        Ok(NewEvent { contact, ..notice.accept(&live.config, &live.revision, now) })
    }
}
