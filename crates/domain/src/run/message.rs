//! Fills a message template: the parameters of `messaging.send_template` become those of `email.send`.

use serde_json::{Map, Value};

use crate::action::Action;
use crate::template::{Messages, Scope, TemplateProblem};
use crate::worker::Worker;

/// The parameters that the connector is called with. Other actions keep theirs.
pub fn fill(
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
    // Safe mode may replace the template.
    let safe_mode = scope.get("safe_mode") == Some(&Value::Bool(true));
    let safer = worker.safe_mode.templates.get(&name).filter(|_| safe_mode);
    let vars = with.remove("vars");
    let message = messages.render(safer.unwrap_or(&name), scope, vars.as_ref())?;
    with.remove("channel");
    put_text(&mut with, "subject", Some(message.subject));
    put_text(&mut with, "text", message.text);
    put_text(&mut with, "html", message.html);
    Ok(Value::Object(with))
}

fn put_text(with: &mut Map<String, Value>, name: &str, text: Option<String>) {
    if let Some(text) = text {
        with.insert(name.to_owned(), Value::String(text));
    }
}
