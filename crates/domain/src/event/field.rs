//! One field of a mapping: where its value comes from, and the form that it has in the event.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{into_scalar, read_time, scalar};
use crate::normalize;
use crate::path::Path;
use crate::template::{Expression, Scope, Template, TemplateProblem, is_present};
use crate::time::Time;

/// A value of `identity`, `attributes` or `routing`.
#[derive(Clone, Debug)]
pub struct FieldMapping {
    pub from: Template,
    /// Chooses an item, if `from` is a list of them.
    pub select: Option<Selection>,
    pub form: Option<FieldForm>,
    /// Used if the source has no value, or none that can be converted.
    pub default: Option<Value>,
}

/// Chooses one item of a list, such as the answer to one question of a form.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Paths into the item, each with the text that must be there.
    pub conditions: Vec<(Path, String)>,
    /// Paths into the chosen item; the first with a value counts. Empty: the item itself.
    pub take: Vec<Path>,
}

/// The form that a value is converted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldForm {
    Text,
    /// Text in lower case.
    Lower,
    Integer,
    Number,
    /// True or false.
    Flag,
    Email,
    /// `+14155550123`. `region` is the country of numbers without a country code.
    Phone {
        region: Option<String>,
    },
    /// RFC 3339 in UTC. `format` is in the notation of strftime; `zone` applies to times without an offset.
    Time {
        format: Option<String>,
        zone: Option<String>,
    },
    /// `2026-03-22`.
    Date {
        format: Option<String>,
    },
    /// First part of a full name.
    FirstName,
    /// Everything behind the first part of a full name.
    LastName,
}

/// What a conversion lost, or why a lookup left nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossCode {
    /// A list or an object where a single value is needed.
    NotScalar,
    NotANumber,
    FractionRemoved,
    NotAFlag,
    NotAnEmail,
    NotAPhone,
    NotATime,
    /// More than one item of a list matched; the first one counts.
    SeveralMatches,
    /// What a lookup should be made with is not an IP address.
    NotAnAddress,
    /// The file of a lookup is missing, or not what it should be.
    DatabaseUnreadable,
    LookupTimedOut,
    /// The destination of a lookup is paused, at its limit, or its breaker is open.
    LookupSkipped,
    LookupFailed,
}

impl LossCode {
    pub const ALL: [LossCode; 13] = [
        LossCode::NotScalar,
        LossCode::NotANumber,
        LossCode::FractionRemoved,
        LossCode::NotAFlag,
        LossCode::NotAnEmail,
        LossCode::NotAPhone,
        LossCode::NotATime,
        LossCode::SeveralMatches,
        LossCode::NotAnAddress,
        LossCode::DatabaseUnreadable,
        LossCode::LookupTimedOut,
        LossCode::LookupSkipped,
        LossCode::LookupFailed,
    ];

    /// Whether a lookup that failed so may succeed later.
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            LossCode::DatabaseUnreadable | LossCode::LookupTimedOut | LossCode::LookupSkipped | LossCode::LookupFailed
        )
    }

    pub fn as_str(self) -> &'static str {
        match self {
            LossCode::NotScalar => "not-scalar",
            LossCode::NotANumber => "not-a-number",
            LossCode::FractionRemoved => "fraction-removed",
            LossCode::NotAFlag => "not-a-flag",
            LossCode::NotAnEmail => "not-an-email",
            LossCode::NotAPhone => "not-a-phone",
            LossCode::NotATime => "not-a-time",
            LossCode::SeveralMatches => "several-matches",
            LossCode::NotAnAddress => "not-an-address",
            LossCode::DatabaseUnreadable => "database-unreadable",
            LossCode::LookupTimedOut => "lookup-timed-out",
            LossCode::LookupSkipped => "lookup-skipped",
            LossCode::LookupFailed => "lookup-failed",
        }
    }

    pub fn parse(text: &str) -> Option<LossCode> {
        LossCode::ALL.into_iter().find(|code| code.as_str() == text)
    }
}

/// A field whose conversion lost something: part of the event, and the stored request has the original value. Or a lookup of a step
/// that failed: part of the result of the step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MappingWarning {
    /// Path into the event, such as `attributes.company_size`; or the step, such as `steps.geo`.
    pub field: String,
    pub code: LossCode,
}

/// A converted value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    pub value: Option<Value>,
    pub loss: Option<LossCode>,
}

impl Converted {
    fn of(value: Value) -> Converted {
        Converted { value: Some(value), loss: None }
    }

    fn lost(loss: LossCode) -> Converted {
        Converted { value: None, loss: Some(loss) }
    }
}

impl From<Template> for FieldMapping {
    fn from(from: Template) -> FieldMapping {
        FieldMapping { from, select: None, form: None, default: None }
    }
}

impl FieldMapping {
    /// The value as it is mapped. A blank text counts as no value where the field has a form or a default.
    pub fn render(&self, scope: &Scope) -> Result<Converted, TemplateProblem> {
        if self.select.is_none() && self.form.is_none() && self.default.is_none() {
            return Ok(Converted { value: self.from.render_plain(scope)?, loss: None });
        }
        let value = match self.from.is_complete(scope)? {
            true => self.from.render_plain(scope)?,
            false => None,
        };
        Ok(self.convert(value))
    }

    /// The same for a value that identifies something: one that cannot be converted in full is missing, and so is one of which
    /// a part is missing.
    pub fn render_identity(&self, scope: &Scope) -> Result<Converted, TemplateProblem> {
        let plain = self.select.is_none() && self.form.is_none();
        if plain {
            let value = self.from.render_identity(scope)?.or_else(|| self.default.clone());
            return Ok(Converted { value, loss: None });
        }
        let mut converted = self.render(scope)?;
        if converted.loss.is_some() {
            converted.value = self.default.clone();
        }
        converted.value = converted.value.filter(is_present);
        Ok(converted)
    }

    fn convert(&self, value: Option<Value>) -> Converted {
        let (value, several) = match &self.select {
            None => (value, None),
            Some(select) => select.choose(value),
        };
        let mut converted = match (value.filter(is_present), &self.form) {
            (None, _) => Converted::default(),
            (Some(value), None) => Converted::of(value),
            (Some(value), Some(form)) => form.convert(value),
        };
        converted.loss = converted.loss.or(several);
        if converted.value.is_none() {
            converted.value = self.default.clone();
        }
        converted
    }

    /// Visits every expression.
    pub fn visit_expressions<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        self.from.visit_expressions(visit);
    }
}

impl Selection {
    fn choose(&self, value: Option<Value>) -> (Option<Value>, Option<LossCode>) {
        let items = match value {
            None | Some(Value::Null) => return (None, None),
            Some(Value::Array(items)) => items,
            Some(_) => return (None, Some(LossCode::NotScalar)),
        };
        let matches = |item: &&Value| {
            self.conditions
                .iter()
                .all(|(path, wanted)| path.find(item).and_then(scalar).is_some_and(|found| found == *wanted))
        };
        let mut matching = items.iter().filter(matches);
        let Some(item) = matching.next() else { return (None, None) };
        let several = matching.next().map(|_| LossCode::SeveralMatches);
        let found = match self.take.is_empty() {
            true => Some(item),
            false => self.take.iter().find_map(|path| path.find(item).filter(|value| is_present(value))),
        };
        (found.cloned(), several)
    }
}

/// Longest text that is read as a number, time, phone number or flag.
const CONVERTIBLE_BYTES_MAX: usize = 200;

impl FieldForm {
    /// Names of `as:`.
    pub const NAMES: [&'static str; 11] =
        ["text", "lower", "integer", "number", "flag", "email", "phone", "time", "date", "first_name", "last_name"];

    fn convert(&self, value: Value) -> Converted {
        let Some(text) = into_scalar(value) else { return Converted::lost(LossCode::NotScalar) };
        let text = text.trim();
        match self {
            FieldForm::Text => Converted::of(text.into()),
            FieldForm::Lower => Converted::of(text.to_lowercase().into()),
            FieldForm::Integer => integer(text),
            FieldForm::Number => number(text),
            FieldForm::Flag => flag(text),
            FieldForm::Email => match normalize::is_email(text) {
                true => Converted::of(normalize::email(text).into()),
                false => Converted::lost(LossCode::NotAnEmail),
            },
            FieldForm::Phone { region } => phone(text, region.as_deref()),
            FieldForm::Time { format, zone } => match time(text, format.as_deref(), zone.as_deref()) {
                Some(time) => Converted::of(time.to_string().into()),
                None => Converted::lost(LossCode::NotATime),
            },
            FieldForm::Date { format } => match date(text, format.as_deref()) {
                Some(date) => Converted::of(date.to_string().into()),
                None => Converted::lost(LossCode::NotATime),
            },
            FieldForm::FirstName => Converted { value: split_name(text).0.map(Value::from), loss: None },
            FieldForm::LastName => Converted { value: split_name(text).1.map(Value::from), loss: None },
        }
    }
}

fn integer(text: &str) -> Converted {
    if let Ok(whole) = text.parse::<i64>() {
        return Converted::of(whole.into());
    }
    match decimal(text) {
        Some(number) if number.abs() < 9e15 => Converted {
            value: Some(Value::from(number.trunc() as i64)),
            loss: (number.fract() != 0.0).then_some(LossCode::FractionRemoved),
        },
        _ => Converted::lost(LossCode::NotANumber),
    }
}

fn number(text: &str) -> Converted {
    if let Ok(whole) = text.parse::<i64>() {
        return Converted::of(whole.into());
    }
    let number = decimal(text).and_then(serde_json::Number::from_f64);
    number.map_or(Converted::lost(LossCode::NotANumber), |number| Converted::of(Value::Number(number)))
}

/// A decimal number. `NaN`, `inf` and hexadecimal forms are none.
fn decimal(text: &str) -> Option<f64> {
    let is_decimal = text.len() <= CONVERTIBLE_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.contains(|c: char| c.is_ascii_digit());
    is_decimal.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

fn flag(text: &str) -> Converted {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match () {
        () if is(&["true", "yes", "on", "1", "y", "t"]) => Converted::of(true.into()),
        () if is(&["false", "no", "off", "0", "n", "f"]) => Converted::of(false.into()),
        () => Converted::lost(LossCode::NotAFlag),
    }
}

/// A number that cannot be read is kept as it was written: a worker may still correct it.
fn phone(text: &str, region: Option<&str>) -> Converted {
    let number = if text.len() <= CONVERTIBLE_BYTES_MAX { normalize::e164(text, region) } else { text.to_owned() };
    let is_e164 = number
        .strip_prefix('+')
        .is_some_and(|digits| (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()));
    Converted { value: Some(number.into()), loss: (!is_e164).then_some(LossCode::NotAPhone) }
}

fn time(text: &str, format: Option<&str>, zone: Option<&str>) -> Option<Time> {
    if text.len() > CONVERTIBLE_BYTES_MAX {
        return None;
    }
    let in_zone = |local: jiff::civil::DateTime| {
        let zone = zone.map_or(Some(jiff::tz::TimeZone::UTC), |zone| jiff::tz::TimeZone::get(zone).ok())?;
        Some(Time::from(zone.to_ambiguous_timestamp(local).compatible().ok()?))
    };
    if let Some(format) = format {
        let parsed = jiff::fmt::strtime::parse(format, text).ok()?;
        return match parsed.to_timestamp() {
            Ok(timestamp) => Some(Time::from(timestamp)),
            Err(_) => {
                let local = parsed.to_datetime().or_else(|_| parsed.to_date().map(|date| date.at(0, 0, 0, 0)));
                in_zone(local.ok()?)
            }
        };
    }
    let instant =
        Time::parse(text).or_else(|| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().into()));
    let local = || text.parse::<jiff::civil::DateTime>().ok().and_then(in_zone);
    let day = || text.parse::<jiff::civil::Date>().ok().and_then(|date| in_zone(date.at(0, 0, 0, 0)));
    instant.or_else(local).or_else(day).or_else(|| read_time(&Value::String(text.to_owned())))
}

/// Whether a format of strftime can read a date. It is tried on a text that it wrote itself.
pub fn is_time_format(format: &str) -> bool {
    let sample = jiff::civil::date(2026, 3, 22).at(13, 34, 56, 0).to_zoned(jiff::tz::TimeZone::UTC);
    let Ok(sample) = sample else { return false };
    jiff::fmt::strtime::format(format, &sample).is_ok_and(|text| date(&text, Some(format)).is_some())
}

fn date(text: &str, format: Option<&str>) -> Option<jiff::civil::Date> {
    if text.len() > CONVERTIBLE_BYTES_MAX {
        return None;
    }
    if let Some(format) = format {
        return jiff::fmt::strtime::parse(format, text).ok()?.to_date().ok();
    }
    // The date as it is written counts, whatever the offset behind it.
    let written = text.parse::<jiff::civil::Date>().ok().or_else(|| text.get(..10)?.parse().ok());
    written.or_else(|| Some(jiff::tz::TimeZone::UTC.to_datetime(time(text, None, None)?.to_jiff()).date()))
}

/// First name and last name. `Lovelace, Ada` has the last name first; a single word is a first name.
fn split_name(text: &str) -> (Option<String>, Option<String>) {
    let joined = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    };
    if let Some((last, first)) = text.split_once(',') {
        return (joined(first), joined(last));
    }
    match text.split_once(char::is_whitespace) {
        Some((first, last)) => (joined(first), joined(last)),
        None => (joined(text), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn converted(form: FieldForm, value: Value) -> (Value, Option<LossCode>) {
        let Converted { value, loss } = form.convert(value);
        (value.unwrap_or_default(), loss)
    }

    #[test]
    fn values_are_converted_and_losses_are_named() {
        use LossCode::*;
        for (form, value, expected, loss) in [
            (FieldForm::Text, json!(" Ada "), json!("Ada"), None),
            (FieldForm::Text, json!(7), json!("7"), None),
            (FieldForm::Text, json!(["a"]), json!(null), Some(NotScalar)),
            (FieldForm::Lower, json!(" ADA "), json!("ada"), None),
            (FieldForm::Integer, json!("42"), json!(42), None),
            (FieldForm::Integer, json!(42.0), json!(42), None),
            (FieldForm::Integer, json!("42.7"), json!(42), Some(FractionRemoved)),
            (FieldForm::Integer, json!("about 40"), json!(null), Some(NotANumber)),
            (FieldForm::Integer, json!("inf"), json!(null), Some(NotANumber)),
            (FieldForm::Number, json!("1200.50"), json!(1200.5), None),
            (FieldForm::Number, json!("1e999"), json!(null), Some(NotANumber)),
            (FieldForm::Flag, json!("Yes"), json!(true), None),
            (FieldForm::Flag, json!(0), json!(false), None),
            (FieldForm::Flag, json!("maybe"), json!(null), Some(NotAFlag)),
            (FieldForm::Email, json!(" Ada@Example.COM "), json!("ada@example.com"), None),
            (FieldForm::Email, json!("none"), json!(null), Some(NotAnEmail)),
            (FieldForm::FirstName, json!("Ada  King Lovelace"), json!("Ada"), None),
            (FieldForm::LastName, json!("Ada  King Lovelace"), json!("King Lovelace"), None),
            (FieldForm::FirstName, json!("Lovelace, Ada"), json!("Ada"), None),
            (FieldForm::LastName, json!("Lovelace, Ada"), json!("Lovelace"), None),
            (FieldForm::LastName, json!("Prince"), json!(null), None),
        ] {
            assert_eq!(converted(form.clone(), value.clone()), (expected, loss), "{form:?} of {value}");
        }
    }

    #[test]
    fn phone_number_that_cannot_be_read_is_kept_with_a_warning() {
        let us = FieldForm::Phone { region: Some("US".into()) };
        assert_eq!(converted(us.clone(), json!("(415) 555-0123")), (json!("+14155550123"), None));
        assert_eq!(converted(us, json!("call me")), (json!("call me"), Some(LossCode::NotAPhone)));
        let none = FieldForm::Phone { region: None };
        assert_eq!(converted(none, json!("415 555 0123")), (json!("415 555 0123"), Some(LossCode::NotAPhone)));
    }

    #[test]
    fn times_are_read_in_the_forms_that_senders_use() {
        let time = |format: Option<&str>, zone: Option<&str>, value: Value| {
            let form = FieldForm::Time { format: format.map(Into::into), zone: zone.map(Into::into) };
            converted(form, value)
        };
        let noon = (json!("2026-03-22T12:34:56.000Z"), None);
        assert_eq!(time(None, None, json!("2026-03-22T12:34:56Z")), noon);
        assert_eq!(time(None, None, json!("2026-03-22T13:34:56+01:00")), noon);
        assert_eq!(time(None, None, json!("2026-03-22 12:34:56")), noon);
        assert_eq!(time(None, Some("Europe/Berlin"), json!("2026-03-22 13:34:56")), noon);
        assert_eq!(time(None, None, json!("Sun, 22 Mar 2026 12:34:56 +0000")), noon);
        assert_eq!(time(None, None, json!(1_774_182_896)), noon);
        assert_eq!(time(None, None, json!(1_774_182_896_000_i64)), noon);
        assert_eq!(time(Some("%d.%m.%Y %H:%M:%S"), Some("Europe/Berlin"), json!("22.03.2026 13:34:56")), noon);
        assert_eq!(time(Some("%m/%d/%Y"), None, json!("03/22/2026")), (json!("2026-03-22T00:00:00.000Z"), None));
        assert_eq!(time(None, None, json!("22.03.2026")), (json!(null), Some(LossCode::NotATime)));
        let date =
            |format: Option<&str>, value: Value| converted(FieldForm::Date { format: format.map(Into::into) }, value);
        assert_eq!(date(None, json!("2026-03-22T23:30:00-08:00")), (json!("2026-03-22"), None));
        assert_eq!(date(Some("%d/%m/%Y"), json!("22/03/2026")), (json!("2026-03-22"), None));
        assert_eq!(date(None, json!("spring")), (json!(null), Some(LossCode::NotATime)));
    }

    fn answers() -> Scope {
        let mut scope = Scope::new();
        scope.set(
            "body",
            json!({"answers": [
                {"field": {"ref": "mail"}, "type": "email", "email": "Ada@x.org"},
                {"field": {"ref": "size"}, "type": "number", "number": 12},
                {"field": {"ref": "plan"}, "type": "choice", "choice": {"label": "Pro"}},
                {"field": {"ref": "plan"}, "type": "choice", "choice": {"label": "Free"}},
            ]}),
        );
        scope
    }

    fn answer(reference: &str, take: &[&str], form: Option<FieldForm>) -> FieldMapping {
        let path = |text: &str| Path::parse(text).unwrap();
        let select = Selection {
            conditions: vec![(path("field.ref"), reference.to_owned())],
            take: take.iter().map(|text| path(text)).collect(),
        };
        let from = Template::parse_text("{{ body.answers }}").unwrap();
        FieldMapping { from, select: Some(select), form, default: None }
    }

    #[test]
    fn answer_of_a_form_is_selected_by_its_reference() {
        let scope = answers();
        let value = |field: FieldMapping| field.render(&scope).unwrap();
        let mail = answer("mail", &["text", "email"], Some(FieldForm::Email));
        assert_eq!(value(mail), Converted::of(json!("ada@x.org")));
        assert_eq!(value(answer("size", &["number"], None)), Converted::of(json!(12)));
        assert_eq!(value(answer("absent", &["text"], None)), Converted::default());
        let plan = value(answer("plan", &["choice.label"], None));
        assert_eq!(plan, Converted { value: Some(json!("Pro")), loss: Some(LossCode::SeveralMatches) });
    }

    #[test]
    fn identity_that_cannot_be_converted_in_full_is_missing() {
        let mut scope = Scope::new();
        scope.set("body", json!({"mail": "not an address", "phone": "soon", "blank": " "}));
        let field = |from: &str, form: Option<FieldForm>, default: Option<Value>| FieldMapping {
            from: Template::parse_text(from).unwrap(),
            select: None,
            form,
            default,
        };
        let identity = |field: FieldMapping| field.render_identity(&scope).unwrap();
        let mail = identity(field("{{ body.mail }}", Some(FieldForm::Email), None));
        assert_eq!(mail, Converted::lost(LossCode::NotAnEmail));
        let phone = identity(field("{{ body.phone }}", Some(FieldForm::Phone { region: None }), None));
        assert_eq!(phone, Converted::lost(LossCode::NotAPhone));
        assert_eq!(identity(field("x:{{ body.blank }}", Some(FieldForm::Text), None)), Converted::default());
        let fallback = field("{{ body.blank }}", Some(FieldForm::Text), Some(json!("unknown")));
        assert_eq!(fallback.render(&scope).unwrap(), Converted::of(json!("unknown")));
    }

    proptest::proptest! {
        #[test]
        fn conversions_never_panic(text in ".{0,40}") {
            for form in [
                FieldForm::Integer,
                FieldForm::Number,
                FieldForm::Phone { region: Some("US".into()) },
                FieldForm::Time { format: None, zone: Some("Europe/Berlin".into()) },
                FieldForm::Time { format: Some("%d.%m.%Y".into()), zone: None },
                FieldForm::Date { format: None },
                FieldForm::LastName,
            ] {
                let _ = form.convert(Value::String(text.clone()));
            }
        }
    }
}
