//! An upsert of a declared connector: its look, create and update, by the rules of the connector.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::connector::{Declared, UpsertRule};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

use super::response::{self, ActionRules, Judged};
use super::target::Target;
use super::{exchange, request};
use crate::Call;
use crate::http::response::can_be_read;
use crate::outbound::{HttpResponse, Outbound};
use crate::text::excerpt;
use crate::upsert::{self, UpsertRequests, several, usable_id};

/// Statuses of an update that mean that there is no such record.
const GONE: [u16; 2] = [404, 410];

pub(super) struct Requests<'a> {
    pub(super) outbound: &'a Outbound,
    pub(super) target: &'a Target,
    pub(super) timeout_max: Duration,
    pub(super) action: Declared,
    pub(super) rule: &'static UpsertRule,
    pub(super) call: Call<'a>,
}

impl Requests<'_> {
    fn rules(&self) -> ActionRules<'_> {
        (self.action, &self.target.own_rules)
    }

    pub(super) async fn perform(&self) -> Outcome {
        match self.call.action.record_identity(self.call.with) {
            Some(identity) => upsert::call(self, &identity, self.call.record).await,
            None => Outcome::Reject { failure: upsert::no_identity() },
        }
    }

    pub(super) async fn read_back(&self) -> Readback {
        match self.call.action.record_identity(self.call.with) {
            Some(identity) => upsert::read_back(self, &identity).await,
            None => Readback::Unreadable(upsert::no_identity()),
        }
    }
}

impl UpsertRequests for Requests<'_> {
    async fn find(&self) -> Result<Option<Value>, Outcome> {
        let build = |call: &Call<'_>| request::render(self.target, self.action, &self.rule.find, call, None);
        let (response, host) = exchange(self.outbound, self.target, self.timeout_max, &self.call, build).await?;
        found(&response, self.rules(), self.rule, &self.call, &host)
    }

    async fn create(&self) -> Result<Value, Outcome> {
        let build = |call: &Call<'_>| request::effect(self.target, self.action, call);
        let (response, host) = exchange(self.outbound, self.target, self.timeout_max, &self.call, build).await?;
        created(&response, self.rules(), self.rule, &self.call, &host)
    }

    async fn update(&self, id: &Value) -> Result<bool, Outcome> {
        let Some(update) = &self.rule.update else { return Ok(true) };
        let build = |call: &Call<'_>| request::render(self.target, self.action, update, call, Some(id));
        let (response, host) = exchange(self.outbound, self.target, self.timeout_max, &self.call, build).await?;
        if GONE.contains(&response.status) {
            return Ok(false);
        }
        accepted(&response, self.rules(), &self.call, &host).map(|()| true)
    }
}

/// Id of the new record, from the answer to the create.
pub(super) fn created(
    response: &HttpResponse,
    action: ActionRules<'_>,
    rule: &UpsertRule,
    call: &Call<'_>,
    host: &str,
) -> Result<Value, Outcome> {
    accepted(response, action, call, host)?;
    let scope = response::scope(response, Some(call));
    let id = rule.created_id.evaluate(&scope).ok().flatten();
    // The record is there, and will be found.
    usable_id(id.as_ref()).ok_or_else(|| unexpected(response, host, "no id of the new record"))
}

/// Id of the record, from the answer to the look.
pub(super) fn found(
    response: &HttpResponse,
    action: ActionRules<'_>,
    rule: &UpsertRule,
    call: &Call<'_>,
    host: &str,
) -> Result<Option<Value>, Outcome> {
    if response.status == 404 {
        return Ok(None);
    }
    accepted(response, action, call, host)?;
    let mut scope = response::scope(response, Some(call));
    if !can_be_read(response, &rule.records, &scope) {
        return Err(unexpected(response, host, "a text that has no records"));
    }
    let records = match rule.records.evaluate(&scope) {
        Ok(Some(Value::Array(records))) => records,
        _ => return Err(unexpected(response, host, "no list of records")),
    };
    match <[Value; 1]>::try_from(records) {
        Ok([record]) => {
            scope.set("record", record);
            let id = rule.record_id.evaluate(&scope).ok().flatten();
            match usable_id(id.as_ref()) {
                Some(id) => Ok(Some(id)),
                None => Err(unexpected(response, host, "a record without an id")),
            }
        }
        Err(records) if records.is_empty() => Ok(None),
        Err(records) => Err(several(records.len())),
    }
}

/// Whether the answer means success, by the rules of the action.
fn accepted(response: &HttpResponse, action: ActionRules<'_>, call: &Call<'_>, host: &str) -> Result<(), Outcome> {
    match response::outcome(response, action, call, host).1 {
        Judged::Outcome(Outcome::Done { .. }) if !response.truncated => Ok(()),
        Judged::Outcome(Outcome::Done { .. }) => Err(unexpected(response, host, "more than fits")),
        judged => Err(judged.into_outcome()),
    }
}

fn unexpected(response: &HttpResponse, host: &str, what: &str) -> Outcome {
    let text = format!("{host} answered with {what}: {}", excerpt(&response.body));
    let failure = Failure::new(FailureClass::Retryable, "unexpected-response", text).with_status(response.status);
    Outcome::Unsure { failure }
}

/// As the output of the step, for recorded answers.
pub(super) fn output(id: &Value, call: &Call<'_>) -> Value {
    json!({ "id": id, "identity": call.action.record_identity(call.with) })
}
