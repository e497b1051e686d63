//! Policies decide whether an effect is allowed: consent, quiet hours, suppression, conditions and caps, as data.
//!
//! All rules but caps are decided here, from data passed by the caller. Only the ledger can count effects exactly, so
//! [`Policy::evaluate`] returns the caps: they are reserved in the transaction that writes the effect's intent.

mod quiet_hours;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use quiet_hours::{QuietAction, QuietHours, QuietStatus, TimeOfDay, zone, zones};

use crate::event::scalar;
use crate::key::{KeyDigest, TENANT};
use crate::mutant::Mutant;
use crate::normalize;
use crate::template::{Expression, Scope, TemplateProblem};
use crate::time::Time;
use crate::unit::format_duration;

/// Rules that must pass before an effect is sent.
#[derive(Clone, Debug)]
pub struct Policy {
    pub name: Arc<str>,
    /// Expressions that give the contact; the first one with a value wins.
    pub contact: Vec<Expression>,
    /// Caps count effects per channel.
    pub channel: Arc<str>,
    /// Evaluated in order. The first refusal decides.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub struct Rule {
    /// Name in results and metrics: the kind of rule, unless the author names it.
    pub name: Arc<str>,
    pub kind: RuleKind,
}

#[derive(Clone, Debug)]
pub enum RuleKind {
    /// The contact has given consent.
    Consent {
        from: ConsentSource,
        /// Result when the source says nothing.
        default: ConsentDefault,
    },
    /// The local time of the contact is outside the quiet hours.
    QuietHours(QuietHours),
    /// At most so many effects per contact and channel.
    Cap(Cap),
    /// The contact is on no suppression list.
    Suppression(Suppression),
    /// The expression is true.
    When(Expression),
}

#[derive(Clone, Debug)]
pub enum ConsentSource {
    /// An expression over the event.
    Event(Expression),
    /// The ledger's consent table, written by `consent.set`, under this purpose.
    Table(Arc<str>),
}

/// Result of a consent rule when its source says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsentDefault {
    Deny,
    Allow,
}

/// At most `max` effects within any interval of length `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    pub max: u32,
    pub window: Duration,
}

impl Cap {
    pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);
}

/// Contacts that must not receive anything.
#[derive(Clone, Debug, Default)]
pub struct Suppression {
    /// Contacts, and whole domains as `@example.com`, normalized.
    pub listed: Arc<BTreeSet<String>>,
}

impl Suppression {
    /// Parses a list: one contact or `@domain` per line; `#` starts a comment.
    pub fn read(text: &str) -> BTreeSet<String> {
        let line = |line: &str| normalize::email(line.split('#').next().unwrap_or_default());
        text.lines().map(line).filter(|line| !line.is_empty()).collect()
    }

    fn contains(&self, contact: &str) -> bool {
        let domain = contact.rfind('@').map(|at| &contact[at..]);
        self.listed.contains(contact) || domain.is_some_and(|domain| self.listed.contains(domain))
    }
}

/// Recipient of an effect, normalized.
#[derive(Clone, PartialEq, Eq)]
pub struct Contact(String);

impl Contact {
    /// Trims and lower-cases; takes the address out of `Ada <ada@example.com>`. `None` if nothing is left.
    pub fn new(text: &str) -> Option<Contact> {
        let inside =
            text.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or(text, |(inside, _)| inside);
        let text = normalize::email(inside);
        (!text.is_empty()).then_some(Contact(text))
    }

    /// Lookup key. The ledger stores only a keyed digest of it.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::new(TENANT, "policy contact", &self.0)
    }

    /// Personal data; keep it out of logs.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Hides the address.
impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contact(***)")
    }
}

/// Contact data a policy is evaluated with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactFacts {
    /// Entries of the consent table by purpose; a missing entry means that nothing is recorded.
    pub consent: Vec<(Arc<str>, bool)>,
    /// True if the contact is on the ledger's suppression list, for this channel or for all.
    pub suppressed: bool,
}

/// Why an effect is refused or deferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDenial {
    pub policy: Arc<str>,
    pub rule: Arc<str>,
    /// Message for the operator.
    pub detail: String,
}

impl PolicyDenial {
    /// The denial as the result of a no-op effect.
    pub fn to_value(&self) -> Value {
        serde_json::json!({
            "noop": "refused by policy", "policy": &*self.policy, "rule": &*self.rule, "detail": self.detail,
        })
    }
}

/// A cap that the ledger must reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapReservation {
    /// Effects are counted per policy, over all workers.
    pub policy: Arc<str>,
    pub rule: Arc<str>,
    pub channel: Arc<str>,
    pub contact: KeyDigest,
    pub cap: Cap,
}

impl CapReservation {
    /// Whether the cap has no room for another effect if so many count already.
    pub fn is_exhausted(&self, used: u64) -> bool {
        used >= u64::from(self.cap.max) && !Mutant::CapIgnored.is_on()
    }

    /// The denial when the cap is exhausted.
    pub fn refusal(&self) -> PolicyDenial {
        let Cap { max, window } = self.cap;
        let detail =
            format!("cap reached: {max} by {} within {} for this contact", self.channel, format_duration(window));
        PolicyDenial { policy: self.policy.clone(), rule: self.rule.clone(), detail }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// Allowed, if each of these caps can be reserved.
    Allowed(Vec<CapReservation>),
    /// Refused for good.
    Refused(PolicyDenial),
    /// Refused for now.
    Later { until: Time, refusal: PolicyDenial },
}

/// Result of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleResult {
    Passed(String),
    Refused(String),
    /// Refused until this time.
    Later(Time, String),
    /// The ledger must reserve this cap.
    Counted(Cap),
}

impl Policy {
    /// The contact of this event.
    pub fn contact(&self, scope: &Scope) -> Result<Option<Contact>, TemplateProblem> {
        for expression in &self.contact {
            if let Some(contact) =
                expression.evaluate(scope)?.as_ref().and_then(scalar).as_deref().and_then(Contact::new)
            {
                return Ok(Some(contact));
            }
        }
        Ok(None)
    }

    /// Purposes that must be looked up in the consent table.
    pub fn purposes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.iter().filter_map(|rule| match &rule.kind {
            RuleKind::Consent { from: ConsentSource::Table(purpose), .. } => Some(purpose),
            _ => None,
        })
    }

    /// True if the ledger's suppression list must be looked up.
    pub(crate) fn reads_suppression(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.kind, RuleKind::Suppression(_)))
    }

    /// Evaluates each rule. Rules on recorded consent, caps and suppression refuse an event without a contact.
    pub fn rule_results(
        &self,
        scope: &Scope,
        contact: Option<&Contact>,
        known: &ContactFacts,
        now: Time,
    ) -> Result<Vec<(&Rule, RuleResult)>, TemplateProblem> {
        self.rules.iter().map(|rule| Ok((rule, rule.evaluate(scope, contact, known, now)?))).collect()
    }

    /// Decides. The first refusal wins; a deferral wins only if no rule refuses.
    pub fn evaluate(
        &self,
        scope: &Scope,
        contact: Option<&Contact>,
        known: &ContactFacts,
        now: Time,
    ) -> Result<PolicyDecision, TemplateProblem> {
        let refusal = |rule: &Rule, detail| PolicyDenial { policy: self.name.clone(), rule: rule.name.clone(), detail };
        let (mut later, mut caps): (Option<(Time, PolicyDenial)>, Vec<CapReservation>) = (None, vec![]);
        for (rule, result) in self.rule_results(scope, contact, known, now)? {
            match result {
                RuleResult::Passed(_) => {}
                RuleResult::Refused(detail) => return Ok(PolicyDecision::Refused(refusal(rule, detail))),
                RuleResult::Later(until, detail) => {
                    if later.as_ref().is_none_or(|(latest, _)| until > *latest) {
                        later = Some((until, refusal(rule, detail)));
                    }
                }
                RuleResult::Counted(cap) => caps.extend(contact.map(|contact| CapReservation {
                    policy: self.name.clone(),
                    rule: rule.name.clone(),
                    channel: self.channel.clone(),
                    contact: contact.digest(),
                    cap,
                })),
            }
        }
        Ok(match later {
            Some((until, refusal)) => PolicyDecision::Later { until, refusal },
            None => PolicyDecision::Allowed(caps),
        })
    }
}

impl Rule {
    fn evaluate(
        &self,
        scope: &Scope,
        contact: Option<&Contact>,
        known: &ContactFacts,
        now: Time,
    ) -> Result<RuleResult, TemplateProblem> {
        let no_contact =
            || RuleResult::Refused("the event has no contact; the policy's `contact` found none".to_owned());
        Ok(match &self.kind {
            RuleKind::Consent { from: ConsentSource::Table(_), .. } if contact.is_none() => no_contact(),
            RuleKind::Consent { from, default } => consent(from, *default, scope, known)?,
            RuleKind::QuietHours(hours) => match hours.evaluate(scope, now)? {
                QuietStatus::Inactive(zone) => {
                    RuleResult::Passed(format!("outside quiet hours {} to {} in {zone}", hours.from, hours.to))
                }
                QuietStatus::Active { until, zone } => {
                    let detail = format!("within quiet hours {} to {} in {zone}", hours.from, hours.to);
                    match hours.action {
                        QuietAction::Skip => RuleResult::Refused(detail),
                        QuietAction::Wait => RuleResult::Later(until, detail),
                    }
                }
            },
            RuleKind::Cap(_) if contact.is_none() => no_contact(),
            RuleKind::Cap(cap) => RuleResult::Counted(*cap),
            RuleKind::Suppression(list) => match contact {
                None => no_contact(),
                Some(contact) if list.contains(contact.text()) => {
                    RuleResult::Refused("the contact is on a suppression list of the configuration".into())
                }
                Some(_) if known.suppressed => {
                    RuleResult::Refused("the contact is on the suppression list of the ledger".into())
                }
                Some(_) => RuleResult::Passed("the contact is on no suppression list".into()),
            },
            RuleKind::When(condition) => match condition.holds(scope)? {
                true => RuleResult::Passed(format!("`{}` is true", condition.source())),
                false => RuleResult::Refused(format!("`{}` is false", condition.source())),
            },
        })
    }
}

fn consent(
    from: &ConsentSource,
    default: ConsentDefault,
    scope: &Scope,
    known: &ContactFacts,
) -> Result<RuleResult, TemplateProblem> {
    let (granted, source) = match from {
        ConsentSource::Event(expression) => {
            (expression.evaluate(scope)?.as_ref().and_then(agreed), format!("`{}`", expression.source()))
        }
        ConsentSource::Table(purpose) => {
            let granted = known.consent.iter().find(|(known, _)| known == purpose).map(|(_, granted)| *granted);
            (granted, format!("the recorded consent for `{purpose}`"))
        }
    };
    Ok(match (granted, default) {
        (Some(true), _) => RuleResult::Passed(format!("{source} is yes")),
        (Some(false), _) => RuleResult::Refused(format!("{source} is no")),
        (None, ConsentDefault::Allow) => RuleResult::Passed(format!("{source} has no value; the default is allow")),
        (None, ConsentDefault::Deny) => RuleResult::Refused(format!("{source} has no value; the default is deny")),
    })
}

/// Reads a field as consent; `None` if it is neither yes nor no.
pub fn agreed(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(agreed) => Some(*agreed),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" | "y" | "1" | "on" | "granted" | "given" | "opt_in" | "opted_in" | "opt-in"
            | "subscribed" => Some(true),
            "false" | "no" | "n" | "0" | "off" | "denied" | "withdrawn" | "revoked" | "opt_out" | "opted_out"
            | "opt-out" | "unsubscribed" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
