//! Maps the exit of a process to an outcome. Pure.

use serde_json::Value;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};

use crate::text::excerpt;

/// sysexits.h: the input is invalid.
const EX_USAGE: i32 = 64;
const EX_DATAERR: i32 = 65;
/// sysexits.h: temporary failure.
const EX_TEMPFAIL: i32 = 75;

/// Exit status of a process and the end of its output.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptExit {
    /// `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

pub(crate) fn outcome(exit: &ScriptExit, class: EffectClass) -> Outcome {
    let quoted = error_line(&exit.errors);
    let separator = if quoted.is_empty() { "." } else { ": " };
    let failure =
        |class, code: String, what: &str| Failure::new(class, code, format!("The script {what}{separator}{quoted}"));
    let exit_code = |code: i32| format!("exit-{code}");
    match exit.code {
        Some(0) => Outcome::Done { result: result(&exit.output) },
        Some(EX_TEMPFAIL) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, exit_code(EX_TEMPFAIL), "requests a retry (exit code 75)"),
            after: None,
        },
        Some(code @ (EX_USAGE | EX_DATAERR)) => Outcome::Reject {
            failure: failure(
                FailureClass::Permanent,
                exit_code(code),
                &format!("rejects this event (exit code {code})"),
            ),
        },
        // A blind effect has no key, so how much of it happened before the failure is unknown.
        Some(code) if class == EffectClass::Blind => Outcome::Unsure {
            failure: failure(
                FailureClass::Retryable,
                exit_code(code),
                &format!("failed (exit code {code}), and its effect may have happened"),
            ),
        },
        Some(code) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, exit_code(code), &format!("failed (exit code {code})")),
            after: None,
        },
        None => {
            let signal = exit.signal.unwrap_or_default();
            Outcome::Unsure {
                failure: failure(
                    FailureClass::Retryable,
                    format!("signal-{signal}"),
                    &format!("was terminated by signal {signal}, and its effect may have happened"),
                ),
            }
        }
    }
}

/// Outcome of a script killed at its time limit.
pub(crate) fn timed_out(limit: &str, errors: &[u8]) -> Outcome {
    let quoted = error_line(errors);
    let separator = if quoted.is_empty() { "." } else { ": " };
    Outcome::Unsure {
        failure: Failure::new(
            FailureClass::Retryable,
            "timeout",
            format!("The script was killed after {limit}, and its effect may have happened{separator}{quoted}"),
        ),
    }
}

/// Last non-blank line if it is JSON, else null.
fn result(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.and_then(|line| serde_json::from_str(line.trim()).ok()).unwrap_or(Value::Null)
}

/// Line with the error: the last one that names an error type, else the last one outside a stack trace.
fn error_line(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let is_candidate = |line: &&str| {
        line.contains(char::is_alphanumeric) && !line.starts_with([' ', '\t']) && !line.starts_with("Node.js v")
    };
    let names_error = |line: &&str| {
        let word = line.split([':', ' ']).next().unwrap_or_default();
        (word.ends_with("Error") || word.ends_with("Exception") || word == "error") && is_candidate(line)
    };
    let line = text.lines().rfind(names_error).or_else(|| text.lines().rfind(is_candidate)).unwrap_or_default();
    excerpt(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exit(code: Option<i32>, errors: &str) -> ScriptExit {
        ScriptExit { code, signal: Some(9), errors: errors.as_bytes().to_vec(), ..ScriptExit::default() }
    }

    #[test]
    fn exit_code_and_effect_class_decide_the_outcome() {
        let brief = |code, class| {
            let outcome = outcome(&exit(code, "no"), class);
            let failure = outcome.failure().unwrap();
            format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code)
        };
        for class in [EffectClass::Keyed, EffectClass::Natural, EffectClass::Blind] {
            assert_eq!(brief(Some(75), class), "retry retryable exit-75");
            assert_eq!(brief(Some(65), class), "reject permanent exit-65");
            assert_eq!(brief(Some(64), class), "reject permanent exit-64");
            assert_eq!(brief(None, class), "unsure retryable signal-9");
        }
        assert_eq!(brief(Some(1), EffectClass::Keyed), "retry retryable exit-1");
        assert_eq!(brief(Some(1), EffectClass::Natural), "retry retryable exit-1");
        assert_eq!(brief(Some(1), EffectClass::Blind), "unsure retryable exit-1");
    }

    #[test]
    fn last_line_is_the_result_if_it_is_json() {
        for (output, expected) in [
            ("log\n{\"id\": 7}\n\n", json!({"id": 7})),
            ("7", json!(7)),
            ("{\"id\": 7}\ndone", Value::Null),
            ("", Value::Null),
        ] {
            assert_eq!(result(output.as_bytes()), expected, "{output}");
        }
    }

    #[test]
    fn line_that_names_the_error_is_quoted() {
        let node = "file:///c/[eval1]:1\nthrow new Error('no');\n      ^\n\nTypeError: forced\n    at x (y:1:2)\n\nNode.js v20.1.0\n";
        let python =
            "Traceback (most recent call last):\n  File \"<string>\", line 1\nValueError: bad ada@example.com\n";
        for (errors, expected) in [
            (node, "TypeError: forced"),
            (python, "ValueError: bad a***@example.com"),
            (
                "error: relation \"contacts\" does not exist\n    at x {\n  code: '42P01'\n}\n\nNode.js v20.1\n",
                "error: relation \"contacts\" does not exist",
            ),
            ("warning\nbash: line 1: x: command not found\n", "bash: line 1: x: command not found"),
            ("", ""),
        ] {
            assert_eq!(error_line(errors.as_bytes()), expected);
        }
    }
}
