//! Outcomes of SMTP replies and of missing replies, by session phase. Pure.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_domain::failure_rules::{FailureTable, RuleCall};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use super::request::Mail;
use crate::failures::{MatchedFailure, shipped};
use crate::text::excerpt;

/// Progress of an SMTP session. Up to and including [`SmtpPhase::Content`] the server has not accepted the mail:
/// it must not accept one without the end of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmtpPhase {
    Connect,
    Greeting,
    Hello,
    StartTls,
    Auth,
    Sender,
    Recipient,
    Data,
    Content,
    /// The end of data (final dot) may have been sent.
    Dot,
}

impl SmtpPhase {
    /// As rules name it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            SmtpPhase::Connect => "CONNECT",
            SmtpPhase::Greeting => "GREETING",
            SmtpPhase::Hello => "EHLO",
            SmtpPhase::StartTls => "STARTTLS",
            SmtpPhase::Auth => "AUTH",
            SmtpPhase::Sender => "MAIL FROM",
            SmtpPhase::Recipient => "RCPT TO",
            SmtpPhase::Data => "DATA",
            SmtpPhase::Content => "CONTENT",
            SmtpPhase::Dot => "DOT",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            SmtpPhase::Connect => "the connection",
            SmtpPhase::Greeting => "the greeting",
            SmtpPhase::Hello => "EHLO",
            SmtpPhase::StartTls => "STARTTLS",
            SmtpPhase::Auth => "AUTH",
            SmtpPhase::Sender => "MAIL FROM",
            SmtpPhase::Recipient => "RCPT TO",
            SmtpPhase::Data => "DATA",
            SmtpPhase::Content => "the content",
            SmtpPhase::Dot => "the end of the content",
        }
    }
}

/// One reply, its lines joined with newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmtpReply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// What error replies mean: `status` is the code of the reply, `code` the command that it answers.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> = LazyLock::new(|| shipped(include_str!("failures.json")));

/// Outcome of an error reply. A reply is definite, also after the end of data.
pub(crate) fn rejected(host: &str, phase: SmtpPhase, reply: &SmtpReply, rules: &FailureTable) -> Outcome {
    // Any other reply does not tell whether the mail was accepted: no rule may say that it was not.
    let is_error = (400..600).contains(&reply.code);
    let found = rules.find(RuleCall::Effect, reply.code, phase.command(), &reply.text);
    let Some(rule) = found.filter(|_| is_error) else {
        let reason = format!("unexpected reply {} to {}", reply.code, phase.describe());
        return no_reply(host, phase, "protocol", &reason);
    };
    let failure = |class| {
        let (quoted, advice) = (excerpt(reply.text.as_bytes()), &rule.advice);
        let message = format!("{host} replied {} to {}: {advice}: {quoted}", reply.code, phase.describe());
        Failure::new(class, format!("smtp-{}", reply.code), message)
    };
    // A reply is no HTTP status: 5xx says that nothing was accepted.
    MatchedFailure { rule, status: 400, requested_wait: None }.outcome(failure)
}

/// Outcome of an attempt without a valid reply.
pub(crate) fn no_reply(host: &str, phase: SmtpPhase, code: &'static str, reason: &str) -> Outcome {
    match phase {
        SmtpPhase::Dot => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{host}: {reason}. The mail was sent completely; the server may have accepted it."),
            ),
        },
        phase => Outcome::Retry {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{host}: {reason} (at {}). The mail was not sent.", phase.describe()),
            ),
            after: None,
        },
    }
}

/// Output of the step.
pub(crate) fn output(mail: &Mail, reply: &SmtpReply) -> Value {
    json!({
        "message_id": mail.message_id,
        "recipients": mail.recipients.len(),
        "answer": format!("{} {}", reply.code, reply.text.replace('\n', " ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::tests::{RecordedFailure, check_recorded};

    const ALL: [SmtpPhase; 10] = [
        SmtpPhase::Connect,
        SmtpPhase::Greeting,
        SmtpPhase::Hello,
        SmtpPhase::StartTls,
        SmtpPhase::Auth,
        SmtpPhase::Sender,
        SmtpPhase::Recipient,
        SmtpPhase::Data,
        SmtpPhase::Content,
        SmtpPhase::Dot,
    ];

    fn brief(outcome: &Outcome) -> String {
        format!("{} {}", outcome.as_str(), outcome.failure().unwrap().class.as_str())
    }

    #[test]
    fn recorded_replies_map_to_outcomes_and_cover_every_rule() {
        let find =
            |reply: &RecordedFailure| SHIPPED_RULES.find(RuleCall::Effect, reply.status, &reply.code, &reply.message);
        check_recorded(include_str!("../../tests/data/smtp.jsonl"), &SHIPPED_RULES, find, |recorded| {
            let phase = ALL.into_iter().find(|phase| phase.command() == recorded.code).unwrap();
            let reply = SmtpReply { code: recorded.status, text: recorded.message.clone() };
            rejected("mx", phase, &reply, &SHIPPED_RULES)
        });
    }

    #[test]
    fn no_rule_decides_about_a_reply_that_may_accept_the_mail() {
        let own = shipped(r#"[{"contains": "queued", "action": "retry", "advice": "a"}]"#);
        let reply = SmtpReply { code: 354, text: "queued".into() };
        assert_eq!(brief(&rejected("mx", SmtpPhase::Dot, &reply, &own)), "unsure retryable");
    }

    #[test]
    fn missing_reply_is_unsure_only_after_the_final_dot() {
        for phase in ALL {
            let expected = if phase == SmtpPhase::Dot { "unsure retryable" } else { "retry retryable" };
            assert_eq!(brief(&no_reply("mx", phase, "reset", "gone")), expected, "{phase:?}");
        }
    }

    #[test]
    fn error_replies_map_to_outcomes_by_phase() {
        let rejected =
            |phase, code| brief(&rejected("mx", phase, &SmtpReply { code, text: "no".into() }, &SHIPPED_RULES));
        for phase in ALL {
            for code in [421, 450, 451, 452] {
                assert_eq!(rejected(phase, code), "retry retryable", "{phase:?} {code}");
            }
        }
        for (phase, code, expected) in [
            (SmtpPhase::Auth, 535, "reject auth"),
            (SmtpPhase::Auth, 454, "retry retryable"),
            (SmtpPhase::Auth, 500, "reject auth"),
            (SmtpPhase::Sender, 530, "reject auth"),
            (SmtpPhase::Greeting, 554, "reject auth"),
            (SmtpPhase::Sender, 550, "reject permanent"),
            (SmtpPhase::Recipient, 550, "reject permanent"),
            (SmtpPhase::Data, 554, "reject permanent"),
            (SmtpPhase::Dot, 554, "reject permanent"),
            (SmtpPhase::Data, 250, "retry retryable"),
            (SmtpPhase::Dot, 354, "unsure retryable"),
        ] {
            assert_eq!(rejected(phase, code), expected, "{phase:?} {code}");
        }
    }
}
