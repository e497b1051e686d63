//! What a mail server's replies mean, and what silence means, by how far the conversation had come. Pure.

use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use super::request::Mail;
use crate::text::excerpt;

/// How far a conversation has come. Up to and including [`Phase::Content`] the server has no mail, whatever happens: it
/// may not take one whose end it has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
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

impl Phase {
    fn describe(self) -> &'static str {
        match self {
            Phase::Connect => "the connection",
            Phase::Greeting => "the greeting",
            Phase::Hello => "EHLO",
            Phase::StartTls => "STARTTLS",
            Phase::Auth => "AUTH",
            Phase::Sender => "MAIL FROM",
            Phase::Recipient => "RCPT TO",
            Phase::Data => "DATA",
            Phase::Content => "the content",
            Phase::Dot => "the end of the content",
        }
    }
}

/// One reply, its lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// What an attempt comes to that the server said no to. A reply is sure, also after the final dot.
pub(crate) fn refused(host: &str, phase: Phase, reply: &Reply) -> Outcome {
    let failure = |class, advice: &str| {
        let said = excerpt(reply.text.as_bytes());
        let message = format!("{host} answered {} to {}: {advice}: {said}", reply.code, phase.describe());
        Failure::new(class, format!("smtp-{}", reply.code), message)
    };
    match (reply.code, phase) {
        (454, Phase::StartTls | Phase::Auth) | (400..=499, _) => Outcome::Retry {
            failure: failure(FailureClass::Retryable, "it does not take the mail for now"),
            after: None,
        },
        (500..=599, Phase::Auth) | (530 | 534 | 535 | 538, _) => Outcome::Reject {
            failure: failure(FailureClass::Auth, "it refuses who we are; check the destination's user and password"),
        },
        (500..=599, Phase::Connect | Phase::Greeting | Phase::Hello | Phase::StartTls) => Outcome::Reject {
            failure: failure(FailureClass::Auth, "it does not serve us; check the destination's host, port and tls"),
        },
        (500..=599, Phase::Recipient) => Outcome::Reject {
            failure: failure(FailureClass::Permanent, "it refuses a recipient, so nobody gets the mail"),
        },
        (500..=599, _) => Outcome::Reject { failure: failure(FailureClass::Permanent, "it refuses the mail") },
        _ => broken(host, phase, "protocol", &format!("it answered {} to {}", reply.code, phase.describe())),
    }
}

/// What an attempt comes to that was not answered, or not in SMTP.
pub(crate) fn broken(host: &str, phase: Phase, code: &'static str, reason: &str) -> Outcome {
    match phase {
        Phase::Dot => Outcome::Unsure {
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
pub(crate) fn output(mail: &Mail, reply: &Reply) -> Value {
    json!({
        "message_id": mail.message_id,
        "recipients": mail.recipients.len(),
        "answer": format!("{} {}", reply.code, reply.text.replace('\n', " ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Phase; 10] = [
        Phase::Connect,
        Phase::Greeting,
        Phase::Hello,
        Phase::StartTls,
        Phase::Auth,
        Phase::Sender,
        Phase::Recipient,
        Phase::Data,
        Phase::Content,
        Phase::Dot,
    ];

    fn brief(outcome: &Outcome) -> String {
        format!("{} {}", outcome.as_str(), outcome.failure().unwrap().class.as_str())
    }

    #[test]
    fn only_silence_after_the_final_dot_leaves_a_doubt() {
        for phase in ALL {
            let expected = if phase == Phase::Dot { "unsure retryable" } else { "retry retryable" };
            assert_eq!(brief(&broken("mx", phase, "reset", "gone")), expected, "{phase:?}");
        }
    }

    #[test]
    fn every_reply_comes_to_what_it_means() {
        let refused = |phase, code| brief(&refused("mx", phase, &Reply { code, text: "no".into() }));
        for phase in ALL {
            for code in [421, 450, 451, 452] {
                assert_eq!(refused(phase, code), "retry retryable", "{phase:?} {code}");
            }
        }
        for (phase, code, expected) in [
            (Phase::Auth, 535, "reject auth"),
            (Phase::Auth, 454, "retry retryable"),
            (Phase::Auth, 500, "reject auth"),
            (Phase::Sender, 530, "reject auth"),
            (Phase::Greeting, 554, "reject auth"),
            (Phase::Sender, 550, "reject permanent"),
            (Phase::Recipient, 550, "reject permanent"),
            (Phase::Data, 554, "reject permanent"),
            (Phase::Dot, 554, "reject permanent"),
            (Phase::Data, 250, "retry retryable"),
            (Phase::Dot, 354, "unsure retryable"),
        ] {
            assert_eq!(refused(phase, code), expected, "{phase:?} {code}");
        }
    }
}
