//! Settings become a command line and an environment. Pure.

use sluice_domain::outcome::Failure;
use sluice_domain::script::Runtime;

use super::runtime::{Version, node_flag};
use super::settings::{Program, Settings};
use crate::parameter::problem;

/// What a single variable may hold: the kernel's own limit is 128 KiB with its name and its end.
const VARIABLE_BYTES_MAX: usize = 120 * 1024;

/// Before an inline script, on its first line, so that the numbers of lines stay right. A body that was too large for
/// the environment is put there now, and it is noted whether the script ever waited for something.
const NODE_BEFORE: &str = "import{readFileSync as sluiceReadFile}from'node:fs';\
    if(process.env.BODY_FILE)process.env.BODY=sluiceReadFile(process.env.BODY_FILE,'utf8');\
    process.nextTick(()=>{globalThis[Symbol.for('sluice.waited')]=true});";

/// After an inline script. One that awaits has done its work when its last line is done; an idle connection in a pool
/// would keep the process for many seconds more. One that does not await goes on until nothing is left to do.
const NODE_AFTER: &str = "\n;if(globalThis[Symbol.for('sluice.waited')])process.exit();\n";

/// A process to be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// Without what is handed on of our own environment.
    pub(crate) env: Vec<(String, String)>,
    /// A body that does not fit the environment, for the file that BODY_FILE names.
    pub(crate) large_body: Option<String>,
}

/// What is the same in every attempt of one effect, and the trace it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectContext<'a> {
    pub(crate) effect_key: &'a str,
    pub(crate) message_key: Option<&'a str>,
    pub(crate) traceparent: Option<&'a str>,
}

/// Builds the command line and the environment. `node` is the version of the node on this machine, where it is known.
pub(crate) fn build(
    settings: &Settings<'_>,
    marks: EffectContext<'_>,
    node: Option<Version>,
) -> Result<Process, Failure> {
    let (program, arguments) = match &settings.program {
        Program::Command(words) => (words[0].to_string(), words[1..].iter().map(ToString::to_string).collect()),
        Program::Inline(runtime, script) => {
            let arguments = match runtime {
                Runtime::Node(_) => {
                    let mut arguments = vec!["--input-type=module".to_owned()];
                    arguments.extend(node.and_then(node_flag).map(str::to_owned));
                    arguments.extend(["--eval".to_owned(), format!("{NODE_BEFORE}{script}{NODE_AFTER}")]);
                    arguments
                }
                Runtime::Python(_) => vec!["-c".to_owned(), script.to_string()],
                Runtime::Bash => ["--noprofile", "--norc", "-eo", "pipefail", "-c", script].map(str::to_owned).to_vec(),
            };
            (runtime.program().to_owned(), arguments)
        }
    };
    let mut env: Vec<(String, String)> = Vec::with_capacity(settings.env.len() + 5);
    for (name, value) in &settings.env {
        if value.len() > VARIABLE_BYTES_MAX {
            return Err(problem(&format!("env.{name}"), "is too large for an environment"));
        }
        env.push(((*name).to_owned(), value.to_string()));
    }
    if settings.event.len() > VARIABLE_BYTES_MAX {
        return Err(problem("event", "is too large for an environment; hand on only what the script needs"));
    }
    env.push(("EVENT".to_owned(), settings.event.clone()));
    env.push(("IDEMPOTENCY_KEY".to_owned(), marks.message_key.unwrap_or(marks.effect_key).to_owned()));
    env.push(("EFFECT_KEY".to_owned(), marks.effect_key.to_owned()));
    env.extend(marks.traceparent.map(|trace| ("TRACEPARENT".to_owned(), trace.to_owned())));
    let large_body = (settings.body.len() > VARIABLE_BYTES_MAX).then(|| settings.body.clone());
    if large_body.is_none() {
        env.push(("BODY".to_owned(), settings.body.clone()));
    }
    Ok(Process { program, arguments, env, large_body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MARKS: EffectContext<'static> =
        EffectContext { effect_key: "eff_01", message_key: Some("key-1"), traceparent: None };

    fn built(with: Value) -> Process {
        build(&Settings::read(&with).unwrap(), MARKS, Some(Version(20, 11))).unwrap()
    }

    #[test]
    fn a_runtime_is_given_the_script_as_it_stands() {
        let node = built(json!({"runtime": "node:18", "script": "import './a.js';\n`${1}`"}));
        assert_eq!(node.program, "node");
        assert_eq!(node.arguments[..3], ["--input-type=module", "--experimental-default-type=module", "--eval"]);
        assert!(node.arguments[3].contains(";import './a.js';\n`${1}`\n;"), "{}", node.arguments[3]);
        assert_eq!(node.arguments[3].lines().count(), 3, "the first line of the script is the first line");
        let python = built(json!({"runtime": "python:3", "script": "print(1)"}));
        assert_eq!((python.program.as_str(), python.arguments[..].join(" ")), ("python3", "-c print(1)".to_owned()));
        let bash = built(json!({"runtime": "bash", "script": "echo $BODY"}));
        assert_eq!(bash.arguments[2..], ["-eo", "pipefail", "-c", "echo $BODY"]);
        let command = built(json!({"command": ["./run", "a b"]}));
        assert_eq!((command.program.as_str(), &command.arguments[..]), ("./run", &["a b".to_owned()][..]));
    }

    #[test]
    fn body_event_and_key_are_in_the_environment() {
        let process = built(json!({"command": "x", "env": {"A": "b"}, "body": {"n": 1}, "event": {"id": "e"}}));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            process.env,
            [
                pair("A", "b"),
                pair("EVENT", "{\"id\":\"e\"}"),
                pair("IDEMPOTENCY_KEY", "key-1"),
                pair("EFFECT_KEY", "eff_01"),
                pair("BODY", "{\"n\":1}")
            ]
        );
        assert!(process.large_body.is_none());
    }

    #[test]
    fn a_large_body_goes_into_a_file_and_nothing_else_may_be_large() {
        let large = "x".repeat(VARIABLE_BYTES_MAX);
        let process = built(json!({"command": "x", "body": large}));
        assert!(process.large_body.is_some() && process.env.iter().all(|(name, _)| name != "BODY"));
        for with in
            [json!({"command": "x", "event": large}), json!({"command": "x", "env": {"A": large.clone() + "y"}})]
        {
            assert!(build(&Settings::read(&with).unwrap(), MARKS, None).is_err());
        }
    }
}
