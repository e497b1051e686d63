//! `approval.request`: checks beyond the action catalogue, and the Slack message step.

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, SlackTransport};
use sluice_domain::outcome::EffectClass;
use sluice_domain::template::Template;
use sluice_domain::worker::{OnError, Step};

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::expression::{Visible, template};
use super::node::YamlNode;
use super::parameters;

/// Suffix of the step that posts the message.
const SUFFIX: &str = "-slack";

/// Checks the `slack` parameter and creates the step that posts the request to Slack.
pub(super) fn message(
    report: Report<'_>,
    asks: &Step,
    with: Option<&YamlNode>,
    names: &Declarations,
    visible: Visible<'_>,
) -> Option<Step> {
    let slack = with?.get("slack")?;
    if slack.entries().is_none() {
        // A value that is neither a map nor a template is reported with the parameter.
        if parameters::is_filled_in(slack) {
            report
                .error(slack.span, "wrong-type", format!("`slack` must be a map, found {}", slack.describe()))
                .hint("its keys are destination and channel");
        }
        return None;
    }
    if asks.foreach.is_some() {
        report
            .error(slack.span, "exclusive-keys", "`slack` supports one request, and `foreach` creates one per item")
            .hint("remove `slack` and decide with `sluice approvals`, or request one approval before the step with `foreach`");
        return None;
    }
    let destination = destination(report, slack, names)?;
    let channel = match slack.get("channel") {
        Some(node) => Some(template(report, node, visible)?),
        None => None,
    };
    let kind = names.destinations.get(&destination).and_then(|placed| placed.value.as_ref()).map(|found| &found.kind);
    if let Some(DestinationKind::Slack(found)) = kind {
        if found.signing_secret.is_none() {
            report
                .error(slack.span, "no-signing-secret", format!("`{destination}` has no `signing_secret`, so button presses cannot be verified"))
                .hint("add `signing_secret: ${secrets.NAME}` to the destination; Slack shows it in the app's basic information");
        }
        if matches!(found.transport, SlackTransport::Token(_)) && channel.is_none() {
            report.error(slack.span, "missing-parameter", "`slack` needs `channel`, the id of a channel");
        }
    }
    let class = kind.map_or(EffectClass::Verifiable, |kind| Action::SlackPost.class_at(&Value::Null, kind));
    let mut parameters = vec![];
    parameters.extend(channel.map(|channel| ("channel".to_owned(), channel)));
    for (name, value) in [("text", json!("{{ approval.title }}")), ("blocks", blocks())] {
        parameters.push((name.to_owned(), of_value(&value)));
    }
    Some(Step {
        id: format!("{}{SUFFIX}", asks.id).into(),
        action: Action::SlackPost,
        destination: destination.into(),
        with: Template::Map(parameters),
        class,
        batch: None,
        // The approval can be decided elsewhere if Slack is down.
        on_error: OnError::Continue,
        announces: Some(asks.id.clone()),
        policies: vec![],
        merged: None,
        ..asks.clone()
    })
}

fn destination(report: Report<'_>, slack: &YamlNode, names: &Declarations) -> Option<String> {
    let is_slack = |name: &&String| {
        let found = names.destinations[*name].value.as_ref();
        found.is_none_or(|found| found.kind.as_str() == "slack")
    };
    let of_type: Vec<&String> = names.destinations.keys().filter(is_slack).collect();
    match (slack.get("destination"), of_type.as_slice()) {
        (None, [only]) => Some((*only).clone()),
        (None, _) => {
            report
                .error(
                    slack.span,
                    "missing-parameter",
                    "`slack` needs `destination`, the name of a destination of type slack",
                )
                .hint("declare one: destinations: {chat: {type: slack, …}}");
            None
        }
        (Some(node), known) => {
            let name = node.text().unwrap_or_default();
            if known.iter().any(|known| *known == name) || names.incomplete {
                return Some(name.to_owned());
            }
            report.error(node.span, "unknown-destination", format!("unknown slack destination `{name}`")).meant(
                name,
                known.iter().map(|known| known.as_str()),
                "declare it under `destinations:`",
            );
            None
        }
    }
}

/// Message with two buttons whose value is the approval id.
fn blocks() -> Value {
    let button = |choice: &str, text: &str, style: &str| {
        json!({
            "type": "button", "action_id": choice, "style": style, "value": "{{ approval.id }}",
            "text": { "type": "plain_text", "text": text },
        })
    };
    json!([
        { "type": "section", "text": { "type": "mrkdwn", "text": "{{ approval.text }}" } },
        { "type": "actions", "block_id": "sluice-approval", "elements": [
            button("approve", "Approve", "primary"), button("reject", "Reject", "danger"),
        ] },
    ])
}

fn of_value(value: &Value) -> Template {
    match value {
        Value::String(text) => Template::parse_text(text).unwrap_or_else(|_| Template::Literal(value.clone())),
        Value::Array(items) => Template::List(items.iter().map(of_value).collect()),
        Value::Object(members) => {
            Template::Map(members.iter().map(|(name, value)| (name.clone(), of_value(value))).collect())
        }
        other => Template::Literal(other.clone()),
    }
}
