//! A message is filled in before it is sent: what `messaging.send_template` is given becomes what `email.send` takes.

use serde_json::{Map, Value};
use sluice_domain::action::Action;
use sluice_domain::template::{Messages, Scope, TemplateProblem};
use sluice_domain::worker::Worker;

/// The parameters that the connector is called with.
pub fn filled(
    messages: &Messages,
    worker: &Worker,
    action: Action,
    scope: &Scope,
    with: Value,
) -> Result<Value, TemplateProblem> {
    let mut with = match with {
        Value::Object(with) if action == Action::SendTemplate => with,
        with => return Ok(with),
    };
    let name = match with.remove("template") {
        Some(Value::String(name)) => name,
        _ => return Err(TemplateProblem("`template` has no value here".into())),
    };
    // In safe mode another message may stand in for this one.
    let safe_mode = scope.get("safe_mode") == Some(&Value::Bool(true));
    let safer = worker.safe_mode.templates.get(&name).filter(|_| safe_mode);
    let name = safer.unwrap_or(&name);
    let vars = with.remove("vars");
    let message = messages.render(name, scope, vars.as_ref())?;
    with.remove("channel");
    let mut put = |name: &str, text: Option<String>| put_text(&mut with, name, text);
    put("subject", Some(message.subject));
    put("text", message.text);
    put("html", message.html);
    Ok(Value::Object(with))
}

fn put_text(with: &mut Map<String, Value>, name: &str, text: Option<String>) {
    if let Some(text) = text {
        with.insert(name.to_owned(), Value::String(text));
    }
}
