//! `alerts:` of a configuration.

use super::digest::DigestSettings;
use super::rules::AlertRules;
use super::silence::Holidays;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertSettings {
    pub rules: AlertRules,
    pub holidays: Holidays,
    /// Without a trailing slash; notices link to its page of alerts.
    pub console_url: Option<String>,
    /// Without a trailing slash; runbooks are pages below it.
    pub runbook_url: Option<String>,
    pub digest: Option<DigestSettings>,
}
