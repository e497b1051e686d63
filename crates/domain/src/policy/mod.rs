//! Whether an effect may happen at all: consent, quiet hours, suppression, conditions and caps, as data.
//!
//! Everything but the caps is decided here, from what the caller knows. Caps are numbers of effects that only the ledger can
//! count exactly, so [`Policy::evaluate`] hands them on: they are reserved in the transaction that writes the effect's intent.

mod quiet_hours;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use quiet_hours::{QuietAction, QuietHours, QuietStatus, TimeOfDay, zone, zones};

use crate::event::scalar;
use crate::key::{KeyDigest, TENANT};
use crate::normalize;
use crate::template::{Expression, Scope, TemplateProblem};
use crate::time::Time;
use crate::unit::format_duration;

/// What has to hold before an effect happens.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: Arc<str>,
    /// Who is written to; the first of these that is there.
    pub contact: Vec<Expression>,
    /// By which way; what is counted under one channel is not counted under another.
    pub channel: Arc<str>,
    /// In this order. The first that refuses decides.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it is called in results and metrics: its kind, unless its author named it.
    pub name: Arc<str>,
    /// What it asks for.
    pub kind: RuleKind,
}

/// What a rule asks for.
#[derive(Clone, Debug)]
pub enum RuleKind {
    /// The contact agreed.
    Consent {
        /// Where that stands.
        from: ConsentSource,
        /// What holds when nothing is known.
        default: ConsentDefault,
    },
    /// It is not night at the contact's.
    QuietHours(QuietHours),
    /// No more than so many, for one contact and channel.
    Cap(Cap),
    /// The contact is on no list.
    Suppression(Suppression),
    /// This holds.
    When(Expression),
}

/// Where consent stands.
#[derive(Clone, Debug)]
pub enum ConsentSource {
    /// In the event.
    Event(Expression),
    /// In the ledger, where `consent.set` keeps it, under this purpose.
    Table(Arc<str>),
}

/// What holds when nobody has said anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsentDefault {
    /// No.
    Deny,
    /// Yes.
    Allow,
}

/// No more than `max` within any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// So many.
    pub max: u32,
    /// Within any span of this length.
    pub window: Duration,
}

impl Cap {
    /// The longest span that is counted over.
    pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);
}

/// Who must not be written to.
#[derive(Clone, Debug, Default)]
pub struct Suppression {
    /// Contacts, and whole domains as `@example.com`, in their one spelling.
    pub listed: Arc<BTreeSet<String>>,
}

impl Suppression {
    /// Reads a list: one contact or `@domain` a line; `#` begins a remark.
    pub fn read(text: &str) -> BTreeSet<String> {
        let line = |line: &str| normalize::email(line.split('#').next().unwrap_or_default());
        text.lines().map(line).filter(|line| !line.is_empty()).collect()
    }

    fn holds(&self, contact: &str) -> bool {
        let domain = contact.rfind('@').map(|at| &contact[at..]);
        self.listed.contains(contact) || domain.is_some_and(|domain| self.listed.contains(domain))
    }
}

/// Who an effect is for, in one spelling.
#[derive(Clone, PartialEq, Eq)]
pub struct Contact(String);

impl Contact {
    /// Without surrounding space and in lower case; nobody if nothing is left. `Ada <ada@example.com>` is the address in it.
    pub fn new(text: &str) -> Option<Contact> {
        let inside =
            text.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or(text, |(inside, _)| inside);
        let text = normalize::email(inside);
        (!text.is_empty()).then_some(Contact(text))
    }

    /// As the ledger finds it again; it keeps only a keyed digest of this.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::new(TENANT, "policy contact", &self.0)
    }

    /// In one spelling. Personal data.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Who it is is not shown.
impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contact(***)")
    }
}

/// What is known when a policy is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactFacts {
    /// What the consent table says, by purpose; `None` is nothing.
    pub consent: Vec<(Arc<str>, bool)>,
    /// Whether the contact is on the ledger's list, for this channel or for all.
    pub suppressed: bool,
}

/// Why an effect does not happen, or not now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDenial {
    /// The policy.
    pub policy: Arc<str>,
    /// The rule that decided.
    pub rule: Arc<str>,
    /// In words.
    pub detail: String,
}

impl PolicyDenial {
    /// As what the effect left: a structured no-op.
    pub fn to_value(&self) -> Value {
        serde_json::json!({
            "noop": "refused by policy", "policy": &*self.policy, "rule": &*self.rule, "detail": self.detail,
        })
    }
}

/// A cap that the ledger has to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapReservation {
    /// The policy: its effects are counted together, whichever worker has them.
    pub policy: Arc<str>,
    /// The rule.
    pub rule: Arc<str>,
    /// The channel.
    pub channel: Arc<str>,
    /// Who.
    pub contact: KeyDigest,
    /// How many are allowed.
    pub cap: Cap,
}

impl CapReservation {
    /// What is said when there is no place left.
    pub fn refusal(&self) -> PolicyDenial {
        let Cap { max, window } = self.cap;
        let detail = format!(
            "this contact has had {max} by {} within {}, and {max} is the most that is allowed",
            self.channel,
            format_duration(window)
        );
        PolicyDenial { policy: self.policy.clone(), rule: self.rule.clone(), detail }
    }
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// It may happen, as far as there is a place under each of these caps.
    Allowed(Vec<CapReservation>),
    /// It does not happen.
    Refused(PolicyDenial),
    /// Not now.
    Later {
        /// Not before.
        until: Time,
        /// Why.
        refusal: PolicyDenial,
    },
}

/// What one rule says, for people who want to see each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// It does not object.
    Passed(String),
    /// It objects.
    Refused(String),
    /// It objects for now.
    Later(Time, String),
    /// The ledger has to count.
    Counted(Cap),
}

impl Policy {
    /// Who it is about.
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

    /// The purposes that the consent table is asked for.
    pub fn purposes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.iter().filter_map(|rule| match &rule.kind {
            RuleKind::Consent { from: ConsentSource::Table(purpose), .. } => Some(purpose),
            _ => None,
        })
    }

    /// Whether the ledger's list of suppressed contacts is asked.
    pub fn reads_suppression(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.kind, RuleKind::Suppression(_)))
    }

    /// What each rule says. Nobody's consent, cap or suppression can be known without a contact, so there must be one where a
    /// rule needs it.
    pub fn rule_results(
        &self,
        scope: &Scope,
        contact: Option<&Contact>,
        known: &ContactFacts,
        now: Time,
    ) -> Result<Vec<(&Rule, RuleResult)>, TemplateProblem> {
        self.rules.iter().map(|rule| Ok((rule, rule.evaluate(scope, contact, known, now)?))).collect()
    }

    /// Decides. The first rule that refuses is the one that decides; one that says "later" decides only if no other refuses.
    pub fn evaluate(
        &self,
        scope: &Scope,
        contact: Option<&Contact>,
        known: &ContactFacts,
        now: Time,
    ) -> Result<PolicyDecision, TemplateProblem> {
        let refusal = |rule: &Rule, detail| PolicyDenial { policy: self.name.clone(), rule: rule.name.clone(), detail };
        let (mut later, mut caps): (Option<(Time, PolicyDenial)>, Vec<CapReservation>) = (None, vec![]);
        for (rule, verdict) in self.rule_results(scope, contact, known, now)? {
            match verdict {
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
        let nobody = || RuleResult::Refused("the event does not say whom this is for".to_owned());
        Ok(match &self.kind {
            RuleKind::Consent { from, default } => {
                let (said, place) = match from {
                    ConsentSource::Event(expression) => {
                        (expression.evaluate(scope)?.as_ref().and_then(agreed), format!("`{}`", expression.source()))
                    }
                    ConsentSource::Table(_) if contact.is_none() => return Ok(nobody()),
                    ConsentSource::Table(purpose) => {
                        let said =
                            known.consent.iter().find(|(known, _)| known == purpose).map(|(_, granted)| *granted);
                        (said, format!("the consent kept for `{purpose}`"))
                    }
                };
                match (said, default) {
                    (Some(true), _) => RuleResult::Passed(format!("{place} says yes")),
                    (Some(false), _) => RuleResult::Refused(format!("{place} says no")),
                    (None, ConsentDefault::Allow) => {
                        RuleResult::Passed(format!("{place} says nothing, and that is enough"))
                    }
                    (None, ConsentDefault::Deny) => {
                        RuleResult::Refused(format!("{place} says nothing, and silence is no consent"))
                    }
                }
            }
            RuleKind::QuietHours(hours) => match hours.evaluate(scope, now)? {
                QuietStatus::Inactive(zone) => {
                    RuleResult::Passed(format!("it is not between {} and {} in {zone}", hours.from, hours.to))
                }
                QuietStatus::Active { until, zone } => {
                    let detail = format!("it is between {} and {} in {zone}", hours.from, hours.to);
                    match hours.action {
                        QuietAction::Skip => RuleResult::Refused(detail),
                        QuietAction::Wait => RuleResult::Later(until, detail),
                    }
                }
            },
            RuleKind::Cap(_) if contact.is_none() => nobody(),
            RuleKind::Cap(cap) => RuleResult::Counted(*cap),
            RuleKind::Suppression(list) => match contact {
                None => nobody(),
                Some(contact) if list.holds(contact.text()) => {
                    RuleResult::Refused("the contact is on a list of the configuration".into())
                }
                Some(_) if known.suppressed => RuleResult::Refused("the contact is suppressed".into()),
                Some(_) => RuleResult::Passed("the contact is on no list".into()),
            },
            RuleKind::When(condition) => match condition.holds(scope)? {
                true => RuleResult::Passed(format!("`{}` holds", condition.source())),
                false => RuleResult::Refused(format!("`{}` does not hold", condition.source())),
            },
        })
    }
}

/// What a field says about consent; `None` if nothing that can be understood.
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
