//! `approval.request`: what the catalogue cannot say, and the message that goes to Slack.

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

/// What the step that posts the message is called, behind the name of the one that asks.
const SUFFIX: &str = "-slack";

/// Checks where an answer could come from, and makes the step that posts the question to Slack, if it is wanted there.
pub(super) fn message(
    report: Report<'_>,
    asks: &Step,
    with: Option<&YamlNode>,
    names: &Declarations,
    visible: Visible<'_>,
) -> Option<Step> {
    let slack = with?.get("slack")?;
    if slack.entries().is_none() {
        // What is no map and is not filled in was said of the parameter.
        if parameters::is_filled_in(slack) {
            report
                .error(slack.span, "wrong-type", format!("`slack` is a map, and this is {}", slack.describe()))
                .hint("its keys are destination and channel");
        }
        return None;
    }
    if asks.foreach.is_some() {
        report
            .error(slack.span, "exclusive-keys", "`slack` shows one question, and `foreach` asks one for each item")
            .hint("leave `slack` out and answer with `sluice approvals`, or ask once, before the step with `foreach`");
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
                .error(slack.span, "no-signing-secret", format!("`{destination}` has no `signing_secret`, so nobody could believe a pressed button"))
                .hint("add `signing_secret: ${secrets.NAME}` to the destination: it stands in the app's basic information");
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
        // A question that Slack does not show can still be answered elsewhere.
        on_error: OnError::Continue,
        announces: Some(asks.id.clone()),
        policies: vec![],
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
            report
                .error(node.span, "unknown-destination", format!("no destination of type slack is called `{name}`"))
                .meant(name, known.iter().map(|known| known.as_str()), "declare it under `destinations:`");
            None
        }
    }
}

/// What people see: the question, and two buttons that carry its name.
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
