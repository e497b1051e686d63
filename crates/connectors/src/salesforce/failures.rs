//! What Salesforce's refusals mean, as data. The error code decides before the status, since the
//! same code comes with different statuses from different parts of Salesforce.

use std::time::Duration;

use sluice_domain::outcome::FailureClass;

/// What follows from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAction {
    /// Hold everything back for so long.
    Wait(Duration),
    /// Try again.
    Retry,
    /// Try a few times, then leave it to a person.
    Conflict,
    /// Never as it stands.
    Reject(FailureClass),
    /// The record is not there.
    Absent,
    /// The token is no good; a new one may be.
    Refresh,
}

/// One line of the table. What is empty or zero fits everything.
#[derive(Debug)]
pub(crate) struct ErrorRule {
    /// The `errorCode`; with a star at its end, how it starts.
    code: &'static str,
    /// The HTTP status, between these two.
    status: (u16, u16),
    /// What the message contains.
    says: &'static str,
    pub(crate) verdict: ErrorAction,
    /// What a person should know or do.
    pub(crate) advice: &'static str,
}

const fn code(code: &'static str, verdict: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code, status: (0, u16::MAX), says: "", verdict, advice }
}

const fn saying(code: &'static str, says: &'static str, verdict: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code, status: (0, u16::MAX), says, verdict, advice }
}

const fn status(from: u16, to: u16, verdict: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code: "", status: (from, to), says: "", verdict, advice }
}

const PERMANENT: ErrorAction = ErrorAction::Reject(FailureClass::Permanent);
const AUTH: ErrorAction = ErrorAction::Reject(FailureClass::Auth);

const CONCURRENT_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(30));
/// The daily limit is a rolling one: a little of it comes back all the time, but no deadline is told.
const DAILY_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(15 * 60));
const LOGIN_LIMIT: ErrorAction = ErrorAction::Wait(Duration::from_secs(60));

const LOCKED: &str = "another change holds the record or its parent";
const BAD_DATA: &str = "correct the mapping or the data, then replay the job";
const GONE: &str = "the record it refers to is gone or converted; a person decides";
const RIGHTS: &str = "check the rights of the integration user";
const APP: &str = "check the connected app, its client_id and client_secret, and its run-as user";

/// Answers to a record request, the first that fits.
static ROWS: &[ErrorRule] = &[
    code("INVALID_SESSION_ID", ErrorAction::Refresh, "the token is expired or revoked"),
    code("INVALID_AUTH_HEADER", ErrorAction::Refresh, "the token is not accepted"),
    saying("REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests", CONCURRENT_LIMIT, "too many long requests run at once"),
    code("REQUEST_LIMIT_EXCEEDED", DAILY_LIMIT, "the organisation's calls for 24 hours are used up"),
    code(
        "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
        PERMANENT,
        "it refers to a record that the integration user may not use",
    ),
    code("INSUFFICIENT_ACCESS*", AUTH, RIGHTS),
    code("API_DISABLED_FOR_ORG", AUTH, "the organisation has no API access"),
    code("UNABLE_TO_LOCK_ROW", ErrorAction::Retry, LOCKED),
    code("DUPLICATES_DETECTED", PERMANENT, "a duplicate rule matched; a person decides, or set allow_duplicates"),
    code(
        "DUPLICATE_VALUE",
        ErrorAction::Conflict,
        "a unique value is taken; if it is this external id, the next try updates that record",
    ),
    saying("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "UNABLE_TO_LOCK_ROW", ErrorAction::Retry, LOCKED),
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
    code("QUERY_TIMEOUT", ErrorAction::Retry, "it ran into a time limit"),
    code("REQUEST_RUNNING_TOO_LONG", ErrorAction::Retry, "it ran into a time limit"),
    code("STORAGE_LIMIT_EXCEEDED", PERMANENT, "the organisation is full; a person has to make room"),
    saying(
        "NOT_FOUND",
        "external ID field",
        PERMANENT,
        "the object has no such external id field, or the integration user cannot see it",
    ),
    code("NOT_FOUND", ErrorAction::Absent, "there is no such record or object"),
    code("UNKNOWN_EXCEPTION", ErrorAction::Retry, "Salesforce failed"),
    code("SERVER_UNAVAILABLE", ErrorAction::Retry, "Salesforce is overloaded or under maintenance"),
    status(300, 300, PERMANENT, "several records share this external id; merge them and make the field unique"),
    status(301, 399, PERMANENT, "redirects are not followed; use the organisation's My Domain as instance_url"),
    status(401, 401, ErrorAction::Refresh, "the token is not accepted"),
    status(403, 403, AUTH, RIGHTS),
    status(404, 404, ErrorAction::Absent, "there is no such record or object"),
    status(408, 408, ErrorAction::Retry, "it ran into a time limit"),
    status(409, 409, ErrorAction::Conflict, "it conflicts with another change"),
    status(410, 410, PERMANENT, "this api_version was retired"),
    status(412, 412, ErrorAction::Conflict, "the record changed meanwhile"),
    status(420, 420, ErrorAction::Conflict, "the organisation is deleted or expired"),
    status(423, 425, ErrorAction::Conflict, "it conflicts with another change"),
    status(429, 429, CONCURRENT_LIMIT, "it asks to slow down"),
    status(400, 499, PERMANENT, BAD_DATA),
    status(500, 599, ErrorAction::Retry, "Salesforce failed"),
];

/// Answers to a request for a token, the first that fits. The effect itself was not sent.
static TOKEN_ROWS: &[ErrorRule] = &[
    saying("", "login rate exceeded", LOGIN_LIMIT, "too many logins"),
    code("rate_limit*", LOGIN_LIMIT, "too many logins"),
    code("server_error", ErrorAction::Retry, "Salesforce failed"),
    code("temporarily_unavailable", ErrorAction::Retry, "Salesforce is away for now"),
    code("unknown_error", ErrorAction::Retry, "Salesforce failed"),
    status(408, 408, ErrorAction::Retry, "it ran into a time limit"),
    status(429, 429, LOGIN_LIMIT, "too many logins"),
    status(500, 599, ErrorAction::Retry, "Salesforce failed"),
    status(300, 399, AUTH, "redirects are not followed; use the organisation's My Domain as instance_url"),
    status(400, 499, AUTH, APP),
];

/// What an answer is not, that fits no row.
static STRANGE: ErrorRule =
    code("", ErrorAction::Conflict, "this does not look like an answer of Salesforce; check instance_url");

impl ErrorRule {
    fn fits(&self, status: u16, code: &str, message: &str) -> bool {
        let code_fits = match self.code.strip_suffix('*') {
            Some(start) => code.starts_with(start),
            None => self.code.is_empty() || self.code == code,
        };
        code_fits && (self.status.0..=self.status.1).contains(&status) && message.contains(self.says)
    }
}

/// What an answer to a record request means.
pub(crate) fn classify(status: u16, code: &str, message: &str) -> &'static ErrorRule {
    ROWS.iter().find(|row| row.fits(status, code, message)).unwrap_or(&STRANGE)
}

/// What an answer to a token request means that brought no token.
pub(crate) fn classify_token(status: u16, code: &str, message: &str) -> &'static ErrorRule {
    TOKEN_ROWS.iter().find(|row| row.fits(status, code, message)).unwrap_or(&STRANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_hides_behind_an_earlier_one() {
        for rows in [ROWS, TOKEN_ROWS] {
            for (index, row) in rows.iter().enumerate() {
                let sample = row.code.replace('*', "_X");
                let met = rows.iter().position(|other| {
                    (row.status.0..=row.status.1.min(600)).all(|status| other.fits(status, &sample, row.says))
                });
                assert_eq!(met, Some(index), "{row:?}");
            }
        }
    }

    #[test]
    fn the_code_decides_before_the_status() {
        assert_eq!(classify(500, "UNABLE_TO_LOCK_ROW", "").verdict, ErrorAction::Retry);
        assert_eq!(classify(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.").verdict, DAILY_LIMIT);
        assert_eq!(classify(503, "REQUIRED_FIELD_MISSING", "").verdict, PERMANENT);
        assert_eq!(classify(200, "", "<html>").verdict, ErrorAction::Conflict);
    }
}
