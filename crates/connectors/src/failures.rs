//! From a failure rule to an outcome, the same for every connector with a table.

use std::time::Duration;

use sluice_domain::destination::DestinationKind;
use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

/// The table that a connector ships.
pub(crate) fn shipped(json: &str) -> FailureTable {
    FailureTable::parse(json).expect("the table is valid: a test reads it")
}

/// What error responses of the actions of this connector mean, before a destination adds rules of its own.
pub(crate) fn shipped_rules(kind: &DestinationKind) -> FailureTable {
    match kind {
        DestinationKind::Http(settings) => crate::http::response::shipped_rules(settings).clone(),
        DestinationKind::Salesforce(_) => crate::salesforce::response::SHIPPED_RULES.clone(),
        DestinationKind::Hubspot(_) => crate::hubspot::response::SHIPPED_RULES.clone(),
        DestinationKind::Postgres(_) => crate::postgres::response::SHIPPED_RULES.clone(),
        DestinationKind::Smtp(_) => crate::email::response::SHIPPED_RULES.clone(),
        DestinationKind::Script(_) => crate::script::response::SHIPPED_RULES.clone(),
        DestinationKind::Slack(_) => crate::slack::response::SHIPPED_RULES.clone(),
        DestinationKind::S3(_) => crate::s3::response::SHIPPED_RULES.clone(),
        DestinationKind::Ses(_) => crate::ses::response::SHIPPED_RULES.clone(),
        DestinationKind::WebPush(_) => crate::web_push::response::SHIPPED_RULES.clone(),
        // A file has no error responses: its errors are those of the machine.
        DestinationKind::File(_) => FailureTable::of_connector(&[]),
        DestinationKind::Declared(declared) => FailureTable::of_connector(&declared.connector.definition.failures)
            .before_http(&crate::http::response::SHIPPED_RULES),
    }
}

/// An error response and the rule that it matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedFailure<'a> {
    pub(crate) rule: &'a FailureRule,
    pub(crate) status: u16,
    /// Wait that the destination asks for.
    pub(crate) requested_wait: Option<Duration>,
}

impl MatchedFailure<'_> {
    /// Outcome of a call with this response. The connector performs `absent` and `convert` itself; where it cannot, they
    /// reject.
    pub(crate) fn outcome(&self, failure: impl Fn(FailureClass) -> Failure) -> Outcome {
        let requested = self.requested_wait;
        match self.rule.action {
            // A wait of no length, such as a date that has passed by this machine's clock, says nothing.
            FailureAction::Wait(wait) => {
                let after = requested.filter(|requested| !requested.is_zero()).or(wait);
                Outcome::Wait { failure: failure(FailureClass::Retryable), after }
            }
            FailureAction::Retry(_) if self.status == 503 && requested.is_some() => {
                Outcome::Wait { failure: failure(FailureClass::Retryable), after: requested }
            }
            FailureAction::Retry(after) => {
                // Not before either of them.
                Outcome::Retry { failure: failure(FailureClass::Retryable), after: requested.max(after) }
            }
            FailureAction::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict), after: requested },
            FailureAction::Reject(class) => Outcome::Reject { failure: failure(class) },
            // A server error does not tell whether the record exists.
            FailureAction::Absent | FailureAction::Convert if self.status >= 500 => {
                Outcome::Retry { failure: failure(FailureClass::Retryable), after: requested }
            }
            FailureAction::Absent | FailureAction::Convert => {
                Outcome::Reject { failure: failure(FailureClass::Permanent) }
            }
            FailureAction::Refresh | FailureAction::Pause => Outcome::Reject { failure: failure(FailureClass::Auth) },
            FailureAction::Unsure => Outcome::Unsure { failure: failure(FailureClass::Retryable) },
            FailureAction::Noop => Outcome::Noop { reason: failure(FailureClass::Permanent).message },
        }
    }

    /// Result of a read-back with this response.
    pub(crate) fn readback(&self, failure: impl Fn(FailureClass) -> Failure) -> Readback {
        Readback::Unreadable(match self.rule.action {
            FailureAction::Absent if self.status < 500 => return Readback::Absent,
            FailureAction::Absent
            | FailureAction::Wait(_)
            | FailureAction::Retry(_)
            | FailureAction::Unsure
            | FailureAction::Noop => failure(FailureClass::Retryable),
            FailureAction::Conflict | FailureAction::Convert => failure(FailureClass::Conflict),
            FailureAction::Reject(class) => failure(class),
            FailureAction::Refresh | FailureAction::Pause => failure(FailureClass::Auth),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use hyper::header::{HeaderMap, HeaderName};
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::outbound::HttpResponse;
    use sluice_domain::failure_rules::RuleCall;

    /// A failure as a destination reports it: an HTTP response, an SMTP reply, an SQLSTATE or an exit.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(crate) struct RecordedFailure {
        #[serde(default)]
        pub(crate) status: u16,
        #[serde(default)]
        pub(crate) code: String,
        #[serde(default)]
        pub(crate) message: String,
        #[serde(default)]
        headers: std::collections::BTreeMap<String, String>,
        #[serde(default)]
        body: Value,
        /// Outcome, class and code.
        expect: String,
    }

    impl RecordedFailure {
        pub(crate) fn response(&self) -> HttpResponse {
            let header = |(name, value): (&String, &String)| {
                (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
            };
            let headers: HeaderMap = self.headers.iter().map(header).collect();
            let body = match &self.body {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                body => body.to_string(),
            };
            HttpResponse { status: self.status, headers, body: body.into(), truncated: false }
        }
    }

    #[test]
    fn wait_of_a_rule_is_kept_where_the_destination_asks_for_none() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let after = |action, requested_wait| {
            let rule = FailureRule {
                call: RuleCall::Effect,
                statuses: vec![],
                codes: vec![],
                contains: None,
                action,
                advice: String::new(),
            };
            let matched = MatchedFailure { rule: &rule, status: 429, requested_wait };
            match matched.outcome(|class| Failure::new(class, "x", "x")) {
                Outcome::Wait { after, .. } | Outcome::Retry { after, .. } => after,
                other => panic!("{other:?}"),
            }
        };
        for (requested, expected) in [(None, 30), (seconds(0), 30), (seconds(5), 5), (seconds(60), 60)] {
            assert_eq!(after(FailureAction::Wait(seconds(30)), requested), seconds(expected), "{requested:?}");
        }
        for (requested, expected) in [(None, 30), (seconds(0), 30), (seconds(5), 30), (seconds(60), 60)] {
            assert_eq!(after(FailureAction::Retry(seconds(30)), requested), seconds(expected), "{requested:?}");
        }
    }

    /// Every recorded failure has the outcome that it expects, and every rule of the table decides one.
    pub(crate) fn check_recorded<'t>(
        lines: &str,
        table: &'t FailureTable,
        find: impl Fn(&RecordedFailure) -> Option<&'t FailureRule>,
        outcome: impl Fn(&RecordedFailure) -> Outcome,
    ) {
        let mut covered = Vec::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let recorded: RecordedFailure =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let found = outcome(&recorded);
            let brief = match found.failure() {
                None => found.as_str().to_owned(),
                Some(failure) => format!("{} {} {}", found.as_str(), failure.class.as_str(), failure.code),
            };
            assert_eq!(brief, recorded.expect, "{line}");
            covered.extend(find(&recorded).cloned());
        }
        let missing: Vec<_> = table.rules().filter(|(rule, _)| !covered.contains(rule)).collect();
        assert!(missing.is_empty(), "no recorded failure for {missing:#?}");
    }
}
