//! Builds the command line and environment from the step's settings. Pure.

use sluice_domain::outcome::Failure;
use sluice_domain::script::Runtime;

use super::runtime::{Version, node_flag};
use super::settings::{Program, Settings};
use crate::parameter::problem;

/// Size limit of one variable: the kernel's limit is 128 KiB including name and terminator.
const VARIABLE_BYTES_MAX: usize = 120 * 1024;

/// Prepended to an inline script on its first line, so line numbers stay correct. Loads a body too large for the
/// environment, and records whether the script yielded to the event loop.
const NODE_PROLOGUE: &str = "import{readFileSync as sluiceReadFile}from'node:fs';\
    if(process.env.BODY_FILE)process.env.BODY=sluiceReadFile(process.env.BODY_FILE,'utf8');\
    process.nextTick(()=>{globalThis[Symbol.for('sluice.waited')]=true});";

/// Appended to an inline script. A script with top-level await has finished at its last line; without the exit, an
/// idle pooled connection would keep the process alive for seconds. One without await runs until its event loop is empty.
const NODE_EPILOGUE: &str = "\n;if(globalThis[Symbol.for('sluice.waited')])process.exit();\n";

/// Process to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// In addition to the inherited variables.
    pub(crate) env: Vec<(String, String)>,
    /// Body too large for the environment, to be written to the file named by BODY_FILE.
    pub(crate) large_body: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectContext<'a> {
    pub(crate) effect_key: &'a str,
    pub(crate) message_key: Option<&'a str>,
    /// From 1.
    pub(crate) attempt: u32,
    pub(crate) traceparent: Option<&'a str>,
}

/// `node` is the installed version of Node.js, if known.
pub(crate) fn build(
    settings: &Settings<'_>,
    context: EffectContext<'_>,
    node: Option<Version>,
) -> Result<Process, Failure> {
    let (program, arguments) = match &settings.program {
        Program::Command(words) => (words[0].to_string(), words[1..].iter().map(ToString::to_string).collect()),
        Program::Inline(runtime, script) => {
            let arguments = match runtime {
                Runtime::Node(_) => {
                    let mut arguments = vec!["--input-type=module".to_owned()];
                    arguments.extend(node.and_then(node_flag).map(str::to_owned));
                    arguments.extend(["--eval".to_owned(), format!("{NODE_PROLOGUE}{script}{NODE_EPILOGUE}")]);
                    arguments
                }
                Runtime::Python(_) => vec!["-c".to_owned(), script.to_string()],
                Runtime::Bash => ["--noprofile", "--norc", "-eo", "pipefail", "-c", script].map(str::to_owned).to_vec(),
            };
            (runtime.program().to_owned(), arguments)
        }
    };
    let mut env: Vec<(String, String)> = Vec::with_capacity(settings.env.len() + 6);
    for (name, value) in &settings.env {
        if value.len() > VARIABLE_BYTES_MAX {
            return Err(problem(&format!("env.{name}"), "is too large for an environment variable"));
        }
        env.push(((*name).to_owned(), value.to_string()));
    }
    if settings.event.len() > VARIABLE_BYTES_MAX {
        return Err(problem(
            "event",
            "is too large for an environment variable; pass only the fields that the script needs",
        ));
    }
    env.push(("EVENT".to_owned(), settings.event.clone()));
    env.push(("IDEMPOTENCY_KEY".to_owned(), context.message_key.unwrap_or(context.effect_key).to_owned()));
    env.push(("EFFECT_KEY".to_owned(), context.effect_key.to_owned()));
    env.push(("ATTEMPT".to_owned(), context.attempt.to_string()));
    env.extend(context.traceparent.map(|trace| ("TRACEPARENT".to_owned(), trace.to_owned())));
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

    const CONTEXT: EffectContext<'static> =
        EffectContext { effect_key: "eff_01", message_key: Some("key-1"), attempt: 2, traceparent: None };

    fn built(with: Value) -> Process {
        build(&Settings::read(&with).unwrap(), CONTEXT, Some(Version(20, 11))).unwrap()
    }

    #[test]
    fn inline_script_is_passed_unchanged_to_its_runtime() {
        let node = built(json!({"runtime": "node:18", "script": "import './a.js';\n`${1}`"}));
        assert_eq!(node.program, "node");
        assert_eq!(node.arguments[..3], ["--input-type=module", "--experimental-default-type=module", "--eval"]);
        assert!(node.arguments[3].contains(";import './a.js';\n`${1}`\n;"), "{}", node.arguments[3]);
        assert_eq!(node.arguments[3].lines().count(), 3, "the script starts on line 1");
        let python = built(json!({"runtime": "python:3", "script": "print(1)"}));
        assert_eq!((python.program.as_str(), python.arguments[..].join(" ")), ("python3", "-c print(1)".to_owned()));
        let bash = built(json!({"runtime": "bash", "script": "echo $BODY"}));
        assert_eq!(bash.arguments[2..], ["-eo", "pipefail", "-c", "echo $BODY"]);
        let command = built(json!({"command": ["./run", "a b"]}));
        assert_eq!((command.program.as_str(), &command.arguments[..]), ("./run", &["a b".to_owned()][..]));
    }

    #[test]
    fn environment_holds_body_event_and_keys() {
        let process = built(json!({"command": "x", "env": {"A": "b"}, "body": {"n": 1}, "event": {"id": "e"}}));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            process.env,
            [
                pair("A", "b"),
                pair("EVENT", "{\"id\":\"e\"}"),
                pair("IDEMPOTENCY_KEY", "key-1"),
                pair("EFFECT_KEY", "eff_01"),
                pair("ATTEMPT", "2"),
                pair("BODY", "{\"n\":1}")
            ]
        );
        assert!(process.large_body.is_none());
    }

    #[test]
    fn large_body_goes_to_a_file_and_other_large_values_are_rejected() {
        let large = "x".repeat(VARIABLE_BYTES_MAX);
        let process = built(json!({"command": "x", "body": large}));
        assert!(process.large_body.is_some() && process.env.iter().all(|(name, _)| name != "BODY"));
        for with in
            [json!({"command": "x", "event": large}), json!({"command": "x", "env": {"A": large.clone() + "y"}})]
        {
            assert!(build(&Settings::read(&with).unwrap(), CONTEXT, None).is_err());
        }
    }
}
