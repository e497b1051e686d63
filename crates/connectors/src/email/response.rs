//! What a mail server's replies mean, and what silence means, by how far the conversation had come. Pure.

use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use super::request::Mail;
use crate::text::excerpt;

/// How far a conversation has come. Up to and including [`Phase::Content`] the server has no mail, whatever happens: it
/// may not take one whose end it has not seen.
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
    /// The final dot may have left.
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

/// One reply, its lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmtpReply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// What an attempt comes to that the server said no to. A reply is sure, also after the final dot.
pub(crate) fn refused(host: &str, phase: SmtpPhase, reply: &SmtpReply) -> Outcome {
    let failure = |class, advice: &str| {
        let said = excerpt(reply.text.as_bytes());
        let message = format!("{host} answered {} to {}: {advice}: {said}", reply.code, phase.describe());
        Failure::new(class, format!("smtp-{}", reply.code), message)
    };
    match (reply.code, phase) {
        (454, SmtpPhase::StartTls | SmtpPhase::Auth) | (400..=499, _) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, "it does not take the mail for now"),
            after: None,
        },
        (500..=599, SmtpPhase::Auth) | (530 | 534 | 535 | 538, _) => Outcome::Reject {
            failure: failure(FailureClass::Auth, "it refuses who we are; check the destination's user and password"),
        },
        (500..=599, SmtpPhase::Connect | SmtpPhase::Greeting | SmtpPhase::Hello | SmtpPhase::StartTls) => {
            Outcome::Reject {
                failure: failure(
                    FailureClass::Auth,
                    "it does not serve us; check the destination's host, port and tls",
                ),
            }
        }
        (500..=599, SmtpPhase::Recipient) => Outcome::Reject {
            failure: failure(FailureClass::Permanent, "it refuses a recipient, so nobody gets the mail"),
        },
        (500..=599, _) => Outcome::Reject { failure: failure(FailureClass::Permanent, "it refuses the mail") },
        _ => broken(host, phase, "protocol", &format!("it answered {} to {}", reply.code, phase.describe())),
    }
}

/// What an attempt comes to that was not answered, or not in SMTP.
pub(crate) fn broken(host: &str, phase: SmtpPhase, code: &'static str, reason: &str) -> Outcome {
    match phase {
        SmtpPhase::Dot => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{host}: {reason}. The whole mail had left; the server may have taken it."),
            ),
        },
        phase => Outcome::Retry {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{host}: {reason}, at {}. The mail was not sent.", phase.describe()),
            ),
            after: None,
        },
    }
}

/// The step's output.
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
    fn only_silence_after_the_final_dot_leaves_a_doubt() {
        for phase in ALL {
            let expected = if phase == SmtpPhase::Dot { "unsure retryable" } else { "retry retryable" };
            assert_eq!(brief(&broken("mx", phase, "reset", "gone")), expected, "{phase:?}");
        }
    }

    #[test]
    fn every_reply_comes_to_what_it_means() {
        let refused = |phase, code| brief(&refused("mx", phase, &SmtpReply { code, text: "no".into() }));
        for phase in ALL {
            for code in [421, 450, 451, 452] {
                assert_eq!(refused(phase, code), "retry retryable", "{phase:?} {code}");
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
            assert_eq!(refused(phase, code), expected, "{phase:?} {code}");
        }
    }
}
