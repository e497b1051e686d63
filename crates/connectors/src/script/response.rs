//! Maps the exit of a process to an outcome. Pure.

use std::sync::LazyLock;

use serde_json::Value;
use sluice_domain::failure_rules::{FailureAction, FailureTable, RuleCall};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};

use crate::failures::{MatchedFailure, shipped};
use crate::text::excerpt;

/// What exits mean: `exit-N` or `signal-N`. 64 and 65 (invalid input) and 75 (temporary failure) are those of sysexits.h.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> = LazyLock::new(|| shipped(include_str!("failures.json")));

/// Exit status of a process and the end of its output.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptExit {
    /// `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

pub(crate) fn outcome(exit: &ScriptExit, class: EffectClass, rules: &FailureTable) -> Outcome {
    let (code, ended) = match exit.code {
        Some(0) => return Outcome::Done { result: result(&exit.output) },
        Some(code) => (format!("exit-{code}"), format!("exit code {code}")),
        None => {
            let signal = exit.signal.unwrap_or_default();
            (format!("signal-{signal}"), format!("signal {signal}"))
        }
    };
    let quoted = error_line(&exit.errors);
    let separator = if quoted.is_empty() { "." } else { ": " };
    let found = rules.find(RuleCall::Effect, 0, &code, &String::from_utf8_lossy(&exit.errors));
    let rule = found.expect("the last rule of the shipped table matches every exit");
    // A blind effect has no key, so how much of it happened before the failure is unknown. After a signal no effect is known.
    let may_be_applied = rule.action == FailureAction::Unsure && (class == EffectClass::Blind || exit.code.is_none());
    let addition = if may_be_applied { ", and its effect may have happened" } else { "" };
    let failure = |class| {
        let message = format!("The script {} ({ended}){addition}{separator}{quoted}", rule.advice);
        Failure::new(class, code.clone(), message)
    };
    match (MatchedFailure { rule, status: 0, requested_wait: None }).outcome(failure) {
        Outcome::Unsure { failure } if !may_be_applied => Outcome::Retry { failure, after: None },
        outcome => outcome,
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
    use crate::failures::tests::{RecordedFailure, check_recorded};
    use serde_json::json;

    fn exit(code: Option<i32>, errors: &str) -> ScriptExit {
        ScriptExit { code, signal: Some(9), errors: errors.as_bytes().to_vec(), ..ScriptExit::default() }
    }

    #[test]
    fn exit_code_and_effect_class_decide_the_outcome() {
        let brief = |code, class| {
            let outcome = outcome(&exit(code, "no"), class, &SHIPPED_RULES);
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
    fn recorded_exits_map_to_outcomes_and_cover_every_rule() {
        let find = |exit: &RecordedFailure| SHIPPED_RULES.find(RuleCall::Effect, 0, &exit.code, &exit.message);
        check_recorded(include_str!("../../tests/data/script.jsonl"), &SHIPPED_RULES, find, |recorded| {
            let code = recorded.code.strip_prefix("exit-").map(|code| code.parse().unwrap());
            outcome(&exit(code, &recorded.message), EffectClass::Keyed, &SHIPPED_RULES)
        });
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
