//! Rules that map Salesforce errors to actions. The error code decides before the status: different
//! Salesforce subsystems return the same code with different statuses.

use std::time::Duration;

use sluice_domain::outcome::FailureClass;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAction {
    /// Pause the destination for this long.
    Wait(Duration),
    Retry,
    /// Retry a few times, then leave it to an operator.
    Conflict,
    /// Do not retry.
    Reject(FailureClass),
    /// The record does not exist.
    Absent,
    /// The token is invalid; fetch a new one.
    Refresh,
}

/// One rule. An empty code or text matches everything.
#[derive(Debug)]
pub(crate) struct ErrorRule {
    /// `errorCode`; a trailing `*` matches a prefix.
    code: &'static str,
    /// HTTP statuses, inclusive.
    status: (u16, u16),
    /// Text that the message contains.
    contains: &'static str,
    pub(crate) action: ErrorAction,
    /// Cause or remedy, for the operator.
    pub(crate) advice: &'static str,
}

const fn code(code: &'static str, action: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code, status: (0, u16::MAX), contains: "", action, advice }
}

const fn code_and_text(
    code: &'static str,
    contains: &'static str,
    action: ErrorAction,
    advice: &'static str,
) -> ErrorRule {
    ErrorRule { code, status: (0, u16::MAX), contains, action, advice }
}

const fn status(from: u16, to: u16, action: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code: "", status: (from, to), contains: "", action, advice }
}

const PERMANENT: ErrorAction = ErrorAction::Reject(FailureClass::Permanent);
const AUTH: ErrorAction = ErrorAction::Reject(FailureClass::Auth);

const CONCURRENT_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(30));
/// The limit is a rolling 24 hours: capacity returns gradually, and Salesforce reports no reset time.
const DAILY_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(15 * 60));
const LOGIN_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(60));

const LOCKED: &str = "another transaction has locked the record or its parent";
const BAD_DATA: &str = "correct the mapping or the data, then replay the job";
const GONE: &str = "the record or a referenced record is deleted or converted; decide by hand";
const PERMISSIONS: &str = "check the permissions of the integration user";
const CONNECTED_APP: &str = "check the connected app, its client_id and client_secret, and its run-as user";

/// Rules for record requests; the first match applies.
static RULES: &[ErrorRule] = &[
    code("INVALID_SESSION_ID", ErrorAction::Refresh, "the token is expired or revoked"),
    code("INVALID_AUTH_HEADER", ErrorAction::Refresh, "the token is not accepted"),
    code_and_text(
        "REQUEST_LIMIT_EXCEEDED",
        "ConcurrentRequests",
        CONCURRENT_LIMIT,
        "too many long-running concurrent requests",
    ),
    code("REQUEST_LIMIT_EXCEEDED", DAILY_LIMIT, "the organisation's 24-hour API request limit is exhausted"),
    code(
        "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
        PERMANENT,
        "the integration user has no access to a referenced record",
    ),
    code("INSUFFICIENT_ACCESS*", AUTH, PERMISSIONS),
    code("API_DISABLED_FOR_ORG", AUTH, "the organisation has no API access"),
    code("UNABLE_TO_LOCK_ROW", ErrorAction::Retry, LOCKED),
    code("DUPLICATES_DETECTED", PERMANENT, "a duplicate rule matched; resolve the duplicate, or set allow_duplicates"),
    code(
        "DUPLICATE_VALUE",
        ErrorAction::Conflict,
        "a unique value exists already; if it is this external id, the next attempt updates that record",
    ),
    code_and_text("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "UNABLE_TO_LOCK_ROW", ErrorAction::Retry, LOCKED),
    code("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", PERMANENT, "a trigger or flow in Salesforce failed"),
    code("REQUIRED_FIELD_MISSING", PERMANENT, BAD_DATA),
    code("STRING_TOO_LONG", PERMANENT, BAD_DATA),
    code("INVALID_FIELD", PERMANENT, BAD_DATA),
    code("INVALID_FIELD_FOR_INSERT_UPDATE", PERMANENT, BAD_DATA),
    code("INVALID_TYPE", PERMANENT, BAD_DATA),
    code("INVALID_EMAIL_ADDRESS", PERMANENT, BAD_DATA),
    code("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", PERMANENT, BAD_DATA),
    code("FIELD_CUSTOM_VALIDATION_EXCEPTION", PERMANENT, BAD_DATA),
    code("FIELD_INTEGRITY_EXCEPTION", PERMANENT, BAD_DATA),
    code("JSON_PARSER_ERROR", PERMANENT, BAD_DATA),
    code("MALFORMED_ID", PERMANENT, BAD_DATA),
    code("MALFORMED_QUERY", PERMANENT, BAD_DATA),
    code("INVALID_CROSS_REFERENCE_KEY", PERMANENT, GONE),
    code("ENTITY_IS_DELETED", PERMANENT, GONE),
    code("CANNOT_UPDATE_CONVERTED_LEAD", PERMANENT, GONE),
    code("QUERY_TIMEOUT", ErrorAction::Retry, "the request exceeded a time limit"),
    code("REQUEST_RUNNING_TOO_LONG", ErrorAction::Retry, "the request exceeded a time limit"),
    code("STORAGE_LIMIT_EXCEEDED", PERMANENT, "the organisation's storage is full; free some of it"),
    code_and_text(
        "NOT_FOUND",
        "external ID field",
        PERMANENT,
        "the object has no such external id field, or the integration user has no access to it",
    ),
    code("NOT_FOUND", ErrorAction::Absent, "the record or object does not exist"),
    code("UNKNOWN_EXCEPTION", ErrorAction::Retry, "Salesforce had an internal error"),
    code("SERVER_UNAVAILABLE", ErrorAction::Retry, "Salesforce is overloaded or under maintenance"),
    status(300, 300, PERMANENT, "several records have this external id; merge them and make the field unique"),
    status(301, 399, PERMANENT, "redirects are not followed; use the organisation's My Domain as instance_url"),
    status(401, 401, ErrorAction::Refresh, "the token is not accepted"),
    status(403, 403, AUTH, PERMISSIONS),
    status(404, 404, ErrorAction::Absent, "the record or object does not exist"),
    status(408, 408, ErrorAction::Retry, "the request exceeded a time limit"),
    status(409, 409, ErrorAction::Conflict, "the change conflicts with another one"),
    status(410, 410, PERMANENT, "this api_version is retired; configure a newer one"),
    status(412, 412, ErrorAction::Conflict, "the record changed in the meantime"),
    status(420, 420, ErrorAction::Conflict, "the organisation is deleted or expired"),
    status(423, 425, ErrorAction::Conflict, "the change conflicts with another one"),
    status(429, 429, CONCURRENT_LIMIT, "Salesforce limits the rate of requests"),
    status(400, 499, PERMANENT, BAD_DATA),
    status(500, 599, ErrorAction::Retry, "Salesforce had an internal error"),
];

/// Rules for token requests; the first match applies. The effect itself was not sent.
static TOKEN_RULES: &[ErrorRule] = &[
    code_and_text("", "login rate exceeded", LOGIN_LIMIT, "too many logins"),
    code("rate_limit*", LOGIN_LIMIT, "too many logins"),
    code("server_error", ErrorAction::Retry, "Salesforce had an internal error"),
    code("temporarily_unavailable", ErrorAction::Retry, "Salesforce is temporarily unavailable"),
    code("unknown_error", ErrorAction::Retry, "Salesforce had an internal error"),
    status(408, 408, ErrorAction::Retry, "the request exceeded a time limit"),
    status(429, 429, LOGIN_LIMIT, "too many logins"),
    status(500, 599, ErrorAction::Retry, "Salesforce had an internal error"),
    status(300, 399, AUTH, "redirects are not followed; use the organisation's My Domain as instance_url"),
    status(400, 499, AUTH, CONNECTED_APP),
];

/// Applies if no other rule matches.
static UNKNOWN_RESPONSE: ErrorRule =
    code("", ErrorAction::Conflict, "the response is not from Salesforce; check instance_url");

impl ErrorRule {
    fn matches(&self, status: u16, code: &str, message: &str) -> bool {
        let code_matches = match self.code.strip_suffix('*') {
            Some(start) => code.starts_with(start),
            None => self.code.is_empty() || self.code == code,
        };
        code_matches && (self.status.0..=self.status.1).contains(&status) && message.contains(self.contains)
    }
}

/// Rule for an error response to a record request.
pub(crate) fn classify(status: u16, code: &str, message: &str) -> &'static ErrorRule {
    RULES.iter().find(|rule| rule.matches(status, code, message)).unwrap_or(&UNKNOWN_RESPONSE)
}

/// Rule for a response to a token request that holds no token.
pub(crate) fn classify_token(status: u16, code: &str, message: &str) -> &'static ErrorRule {
    TOKEN_RULES.iter().find(|rule| rule.matches(status, code, message)).unwrap_or(&UNKNOWN_RESPONSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_shadowed_by_an_earlier_one() {
        for rules in [RULES, TOKEN_RULES] {
            for (index, rule) in rules.iter().enumerate() {
                let sample = rule.code.replace('*', "_X");
                let matched = rules.iter().position(|other| {
                    (rule.status.0..=rule.status.1.min(600)).all(|status| other.matches(status, &sample, rule.contains))
                });
                assert_eq!(matched, Some(index), "{rule:?}");
            }
        }
    }

    #[test]
    fn error_code_takes_precedence_over_status() {
        assert_eq!(classify(500, "UNABLE_TO_LOCK_ROW", "").action, ErrorAction::Retry);
        assert_eq!(classify(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.").action, DAILY_LIMIT);
        assert_eq!(classify(503, "REQUIRED_FIELD_MISSING", "").action, PERMANENT);
        assert_eq!(classify(200, "", "<html>").action, ErrorAction::Conflict);
    }
}
