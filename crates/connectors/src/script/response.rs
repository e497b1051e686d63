//! How a process ended becomes an outcome. Pure.

use serde_json::Value;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};

use crate::text::excerpt;

/// sysexits.h: the input was wrong.
const USAGE: i32 = 64;
const DATA: i32 = 65;
/// sysexits.h: it may work another time.
const TEMPORARY: i32 = 75;

/// How a process ended, and the end of what it said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// What an attempt came to.
pub(crate) fn outcome(ended: &Ended, class: EffectClass) -> Outcome {
    let said = complaint(&ended.errors);
    let colon = if said.is_empty() { "." } else { ": " };
    let failure =
        |class, code: String, what: &str| Failure::new(class, code, format!("The script {what}{colon}{said}"));
    let exit = |code: i32| format!("exit-{code}");
    match ended.code {
        Some(0) => Outcome::Done { result: result(&ended.output) },
        Some(TEMPORARY) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, exit(TEMPORARY), "asks to be run again later (exit code 75)"),
            after: None,
        },
        Some(code @ (USAGE | DATA)) => Outcome::Reject {
            failure: failure(FailureClass::Permanent, exit(code), &format!("refuses this event (exit code {code})")),
        },
        // Without a key of its own nobody knows how far it came before it failed.
        Some(code) if class == EffectClass::Blind => Outcome::Unsure {
            failure: failure(
                FailureClass::Retryable,
                exit(code),
                &format!("failed (exit code {code}), and its effect may have happened"),
            ),
        },
        Some(code) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, exit(code), &format!("failed (exit code {code})")),
            after: None,
        },
        None => {
            let signal = ended.signal.unwrap_or_default();
            Outcome::Unsure {
                failure: failure(
                    FailureClass::Retryable,
                    format!("signal-{signal}"),
                    &format!("was ended by signal {signal}, and its effect may have happened"),
                ),
            }
        }
    }
}

/// What an attempt came to that took too long.
pub(crate) fn too_slow(limit: &str, errors: &[u8]) -> Outcome {
    let said = complaint(errors);
    let colon = if said.is_empty() { "." } else { ": " };
    Outcome::Unsure {
        failure: Failure::new(
            FailureClass::Retryable,
            "timeout",
            format!("The script was killed after {limit}, and its effect may have happened{colon}{said}"),
        ),
    }
}

/// The last line, if it is JSON.
fn result(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.and_then(|line| serde_json::from_str(line.trim()).ok()).unwrap_or(Value::Null)
}

/// The line that says what was wrong: the one that names an error, or else the last that is not part of a trace.
fn complaint(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let plain = |line: &&str| {
        line.contains(char::is_alphanumeric) && !line.starts_with([' ', '\t']) && !line.starts_with("Node.js v")
    };
    let names_error = |line: &&str| {
        let word = line.split([':', ' ']).next().unwrap_or_default();
        (word.ends_with("Error") || word.ends_with("Exception") || word == "error") && plain(line)
    };
    let line = text.lines().rfind(names_error).or_else(|| text.lines().rfind(plain)).unwrap_or_default();
    excerpt(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended(code: Option<i32>, errors: &str) -> Ended {
        Ended { code, signal: Some(9), errors: errors.as_bytes().to_vec(), ..Ended::default() }
    }

    #[test]
    fn the_exit_code_and_the_class_decide() {
        let brief = |code, class| {
            let outcome = outcome(&ended(code, "no"), class);
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
    fn the_last_line_is_the_result_if_it_is_json() {
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
    fn the_line_that_names_the_error_is_quoted() {
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
            assert_eq!(complaint(errors.as_bytes()), expected);
        }
    }
}
