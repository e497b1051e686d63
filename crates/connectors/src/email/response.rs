//! Outcomes of SMTP replies and of missing replies, by session phase. Pure.

use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use super::request::Mail;
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

/// Outcome of an error reply. A reply is definite, also after the end of data.
pub(crate) fn rejected(host: &str, phase: SmtpPhase, reply: &SmtpReply) -> Outcome {
    let failure = |class, advice: &str| {
        let quoted = excerpt(reply.text.as_bytes());
        let message = format!("{host} replied {} to {}: {advice}: {quoted}", reply.code, phase.describe());
        Failure::new(class, format!("smtp-{}", reply.code), message)
    };
    match (reply.code, phase) {
        (454, SmtpPhase::StartTls | SmtpPhase::Auth) | (400..=499, _) => {
            Outcome::Retry { failure: failure(FailureClass::Retryable, "it temporarily rejects the mail"), after: None }
        }
        (500..=599, SmtpPhase::Auth) | (530 | 534 | 535 | 538, _) => Outcome::Reject {
            failure: failure(FailureClass::Auth, "authentication failed; check the destination's user and password"),
        },
        (500..=599, SmtpPhase::Connect | SmtpPhase::Greeting | SmtpPhase::Hello | SmtpPhase::StartTls) => {
            Outcome::Reject {
                failure: failure(
                    FailureClass::Auth,
                    "it refuses the session; check the destination's host, port and tls",
                ),
            }
        }
        (500..=599, SmtpPhase::Recipient) => Outcome::Reject {
            failure: failure(FailureClass::Permanent, "it rejects a recipient, so the mail was sent to no recipient"),
        },
        (500..=599, _) => Outcome::Reject { failure: failure(FailureClass::Permanent, "it rejects the mail") },
        _ => no_reply(host, phase, "protocol", &format!("unexpected reply {} to {}", reply.code, phase.describe())),
    }
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
    fn missing_reply_is_unsure_only_after_the_final_dot() {
        for phase in ALL {
            let expected = if phase == SmtpPhase::Dot { "unsure retryable" } else { "retry retryable" };
            assert_eq!(brief(&no_reply("mx", phase, "reset", "gone")), expected, "{phase:?}");
        }
    }

    #[test]
    fn error_replies_map_to_outcomes_by_phase() {
        let rejected = |phase, code| brief(&rejected("mx", phase, &SmtpReply { code, text: "no".into() }));
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
