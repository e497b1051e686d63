//! The faults by name, for listings.

/// Kind of a fault as in a plan, and what it does. Every server has all of them, as far as its protocol does.
pub const FAULTS: [(&str, &str); 21] = [
    ("latency", "applied and answered late"),
    ("timeout_before", "no answer; nothing is applied"),
    ("timeout_after", "applied, no answer"),
    ("drop_before", "the connection is closed; nothing is applied"),
    ("drop_after", "applied, then the connection is closed"),
    ("cut_response", "applied; the answer ends in the middle"),
    ("too_many_requests", "429, with Retry-After in seconds, as a date, absurd or absent"),
    ("request_limit_exceeded", "the daily limit of calls is used up"),
    ("error_before", "500; nothing is applied"),
    ("error_after", "applied, then 500"),
    ("gateway", "502, 503 or 504 with an HTML page, before or after applying"),
    ("server_unavailable", "503; nothing is applied"),
    ("lock_row", "the record is locked; nothing is applied"),
    ("duplicate_value", "another writer was first"),
    ("invalid_session", "401 whatever the token"),
    ("garbage_body", "200 with a body that is not what it claims, before or after applying"),
    ("huge_body", "applied; the answer does not end"),
    ("trickle_body", "applied; the answer arrives a few bytes at a time"),
    ("redirect_loop", "302 to itself; nothing is applied"),
    ("stale_read", "a read does not find what exists"),
    ("reply", "any status; nothing is applied"),
];

#[cfg(test)]
mod tests {
    use super::super::FaultKind;
    use super::*;

    #[test]
    fn every_kind_is_listed_once() {
        let mut kinds: Vec<FaultKind> = FAULTS
            .iter()
            .map(|(kind, _)| serde_json::from_value(serde_json::json!(kind)).unwrap_or_else(|_| panic!("{kind}")))
            .collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), FAULTS.len());
        assert_eq!(kinds.last(), Some(&FaultKind::Reply), "the last kind of all");
    }
}
