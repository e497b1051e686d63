//! Parameters of a `script` step.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::outcome::{EffectClass, Failure};
use sluice_domain::script::Runtime;
use sluice_domain::unit;

use crate::parameter::{kind, map, problem, required, scalar, text, value};

/// Default time limit.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) program: Program<'a>,
    /// Additional environment variables; null values are skipped.
    pub(crate) env: Vec<(&'a str, Cow<'a, str>)>,
    /// JSON for the variables BODY and EVENT.
    pub(crate) body: String,
    pub(crate) event: String,
    pub(crate) timeout: Duration,
    pub(crate) class: EffectClass,
}

#[derive(Debug)]
pub(crate) enum Program<'a> {
    /// Source text and its runtime.
    Inline(Runtime, Cow<'a, str>),
    /// Program and its arguments.
    Command(Vec<Cow<'a, str>>),
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let program = match value(with, "command") {
            Some(command) => Program::Command(words(command)?),
            None => {
                let name = required(with, "runtime")?;
                let runtime = Runtime::parse(&name)
                    .ok_or_else(|| problem("runtime", "must be node:18, python:3 or bash, or a later version"))?;
                Program::Inline(runtime, required(with, "script")?)
            }
        };
        let mut env = Vec::new();
        for (name, value) in map(with, "env")?.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let parameter = format!("env.{name}");
            let text = scalar(value)
                .ok_or_else(|| problem(&parameter, format_args!("must be text; it is {}", kind(value))))?;
            if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                return Err(problem(
                    &parameter,
                    "is not a valid environment variable: no `=` in the name, no NUL character",
                ));
            }
            env.push((name.as_str(), text));
        }
        let timeout = text(with, "timeout")?.map(|text| unit::duration(&text)).transpose();
        let json = |name: &str| with.get(name).unwrap_or(&Value::Null).to_string();
        Ok(Settings {
            program,
            env,
            body: json("body"),
            event: json("event"),
            timeout: timeout.map_err(|error| problem("timeout", error))?.unwrap_or(TIMEOUT),
            class: Action::Script.class(with),
        })
    }
}

fn words(command: &Value) -> Result<Vec<Cow<'_, str>>, Failure> {
    let items = command.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(command));
    let words: Option<Vec<Cow<'_, str>>> =
        items.iter().map(|item| scalar(item).filter(|text| !text.contains('\0'))).collect();
    words
        .filter(|words| words.first().is_some_and(|program| !program.trim().is_empty()))
        .ok_or_else(|| problem("command", "must be a program and its arguments, each a text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_parameters_have_defaults() {
        let with = json!({"runtime": "node:18", "script": "1", "env": {"A": 1, "B": null}, "body": {"a": 1}});
        let settings = Settings::read(&with).unwrap();
        assert!(matches!(settings.program, Program::Inline(Runtime::Node(18), _)));
        assert_eq!(settings.env, [("A", Cow::Borrowed("1"))]);
        assert_eq!((settings.body.as_str(), settings.event.as_str()), ("{\"a\":1}", "null"));
        assert_eq!((settings.timeout, settings.class), (TIMEOUT, EffectClass::Keyed));
    }

    #[test]
    fn problems_name_the_parameter() {
        for (with, expected) in [
            (json!({"script": "1"}), "`with.runtime` is missing."),
            (json!({"runtime": "ruby:3", "script": "1"}), "`with.runtime` must be"),
            (json!({"runtime": "bash"}), "`with.script` is missing."),
            (json!({"command": []}), "`with.command` must be"),
            (json!({"command": [" "]}), "`with.command` must be"),
            (json!({"command": ["a", {}]}), "`with.command` must be"),
            (json!({"command": "a", "env": {"A=B": "x"}}), "`with.env.A=B` is not a valid environment variable"),
            (json!({"command": "a", "env": {"A": ["x"]}}), "`with.env.A` must be text"),
            (json!({"command": "a", "timeout": "soon"}), "`with.timeout` `soon` is not a duration"),
        ] {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
    }
}
