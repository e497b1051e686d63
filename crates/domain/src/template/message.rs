//! Messages that people write and events fill in: a subject, plain text and HTML under one name.
//!
//! A value that is absent, null or empty is an error wherever it would be printed: what cannot be filled in is not sent.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Environment, ErrorKind, UndefinedBehavior, escape_formatter};
use serde_json::{Map, Value};

use super::expression::{TemplateProblem, describe, quote_hyphens};
use super::function::Function;
use super::scope::Scope;

/// How many instructions one part of a message may take: room for a loop over a large cart.
const FUEL: u64 = 500_000;

/// The parts that a message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// One line.
    Subject,
    /// Plain text.
    Text,
    /// HTML; values are escaped in it.
    Html,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 3] = [Part::Subject, Part::Text, Part::Html];

    /// How the name of its file ends.
    pub fn extension(self) -> &'static str {
        match self {
            Part::Subject => "subject",
            Part::Text => "txt",
            Part::Html => "html",
        }
    }

    /// The part that a file with this ending holds.
    pub fn of_extension(extension: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.extension() == extension)
    }
}

/// Every message of a configuration, read and ready.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    by_name: BTreeMap<String, MessageTemplate>,
}

/// One message, read and ready.
#[derive(Clone, Debug, Default)]
pub struct MessageTemplate {
    parts: BTreeMap<Part, PartTemplate>,
}

/// One part of a message.
#[derive(Clone)]
struct PartTemplate {
    source: String,
    environment: Environment<'static>,
}

impl std::fmt::Debug for PartTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PartTemplate").field(&self.source).finish()
    }
}

/// A message, filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line.
    pub subject: String,
    /// Plain text, where the message has that part.
    pub text: Option<String>,
    /// HTML, where the message has that part.
    pub html: Option<String>,
}

/// Why a part could not be read, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartProblem {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Messages {
    /// Adds a part of a message.
    pub fn add(&mut self, name: &str, part: Part, source: &str) -> Result<(), PartProblem> {
        let template = PartTemplate::read(part, source)?;
        self.by_name.entry(name.to_owned()).or_default().parts.insert(part, template);
        Ok(())
    }

    /// The message of this name.
    pub fn get(&self, name: &str) -> Option<&MessageTemplate> {
        self.by_name.get(name)
    }

    /// Every name, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Fills a message in. `vars` is what the step hands over beside the event.
    pub fn render(&self, name: &str, scope: &Scope, vars: Option<&Value>) -> Result<Message, TemplateProblem> {
        let Some(message) = self.get(name) else {
            let known: Vec<&str> = self.names().collect();
            return Err(TemplateProblem(match known.as_slice() {
                [] => format!("there is no template `{name}`; templates lie in templates/ beside the configuration"),
                known => format!("there is no template `{name}`; there are {}", known.join(", ")),
            }));
        };
        let mut seen = Map::new();
        for root in scope.names() {
            seen.extend(scope.read(root)?.map(|value| (root.to_owned(), value.clone())));
        }
        seen.insert("request".to_owned(), request(scope));
        seen.insert("vars".to_owned(), vars.cloned().unwrap_or_else(|| Value::Object(Map::new())));
        seen.values_mut().for_each(leave_out_empty);
        let seen = Value::Object(seen);
        let part = |part: Part| -> Result<Option<String>, TemplateProblem> {
            let Some(template) = message.parts.get(&part) else { return Ok(None) };
            let place = format!("{name}.{}", part.extension());
            template.render(&seen).map(Some).map_err(|problem| {
                TemplateProblem(format!("template `{place}`, line {}: {}", problem.line, problem.message))
            })
        };
        let subject = part(Part::Subject)?.unwrap_or_default();
        Ok(Message { subject: subject.trim().to_owned(), text: part(Part::Text)?, html: part(Part::Html)? })
    }
}

fn request(scope: &Scope) -> Value {
    let part = |name: &str| (name.to_owned(), scope.get(name).cloned().unwrap_or(Value::Null));
    Value::Object(Map::from_iter([part("body"), part("headers")]))
}

/// What is null or empty is as good as absent: nobody wants to be greeted with "Hello ,".
fn leave_out_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !is_empty(member));
            members.values_mut().for_each(leave_out_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_empty),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        _ => false,
    }
}

impl MessageTemplate {
    /// Whether it has this part.
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains_key(&part)
    }

    /// What each part reads: the part, a dotted name such as `event.email`, and the line on which it stands first.
    pub fn reads(&self) -> Vec<(Part, String, usize)> {
        let mut reads = vec![];
        for (part, template) in &self.parts {
            let mut names: Vec<String> = template.names().into_iter().collect();
            names.sort();
            reads.extend(names.into_iter().map(|name| {
                let line = template.line_of(&name);
                (*part, name, line)
            }));
        }
        reads
    }
}

/// The name of the only template in an environment; how it ends decides what is escaped.
fn inner_name(part: Part) -> &'static str {
    match part {
        Part::Html => "message.html",
        Part::Subject | Part::Text => "message.txt",
    }
}

impl PartTemplate {
    fn read(part: Part, source: &str) -> Result<PartTemplate, PartProblem> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|out, state, value| {
            if value.is_none() || value.is_undefined() {
                return Err(minijinja::Error::from(ErrorKind::UndefinedError));
            }
            escape_formatter(out, state, value)
        });
        Function::register(&mut environment);
        let problem =
            |error: minijinja::Error| PartProblem { line: error.line().unwrap_or(1), message: describe(&error) };
        environment.add_template_owned(inner_name(part), quoted(source)).map_err(problem)?;
        let template = PartTemplate { source: source.to_owned(), environment };
        // Filters are looked up when they are called: a run over nothing finds the unknown ones in what it reaches, and
        // whatever else fails over nothing may well work over an event.
        let mut lenient = template.clone();
        lenient.environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        lenient.environment.set_formatter(escape_formatter);
        match lenient.run(&Value::Object(Map::new())) {
            Err(error) if is_unknown_word(&error) => Err(problem(error)),
            _ => Ok(template),
        }
    }

    fn run(&self, seen: &Value) -> Result<String, minijinja::Error> {
        let Some((_, template)) = self.environment.templates().next() else { return Ok(String::new()) };
        template.render(minijinja::Value::from(minijinja::value::Serde(seen)))
    }

    fn render(&self, seen: &Value) -> Result<String, PartProblem> {
        self.run(seen).map_err(|error| {
            let line = error.line().unwrap_or(1);
            if error.kind() != ErrorKind::UndefinedError {
                return PartProblem { line, message: describe(&error) };
            }
            let missing = self.missing_on(line, seen);
            let message = match missing.as_slice() {
                [] => "a value has nothing in it".to_owned(),
                [one] => format!("`{one}` has no value here"),
                several => format!(
                    "{} have no value here",
                    several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                ),
            };
            PartProblem { line, message }
        })
    }

    /// The dotted names that it reads and does not set itself.
    fn names(&self) -> BTreeSet<String> {
        let Some((_, template)) = self.environment.templates().next() else { return BTreeSet::new() };
        let roots = template.undeclared_variables(false);
        let root = |name: &String| name.split('.').next().is_some_and(|root| roots.contains(root));
        let mut names: BTreeSet<String> = dotted_names(&self.source).into_iter().filter(root).collect();
        let missed =
            roots.iter().filter(|root| !names.iter().any(|name| name.split('.').next() == Some(root.as_str())));
        let missed: Vec<String> = missed.cloned().collect();
        names.extend(missed);
        names
    }

    /// The names on a line, or else anywhere, that have no value.
    fn missing_on(&self, line: usize, seen: &Value) -> Vec<String> {
        let text = self.source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let absent = |name: &String| {
            let found = name.split('.').try_fold(seen, |value, key| value.get(key));
            found.is_none_or(Value::is_null)
        };
        let missing: Vec<String> = self.names().into_iter().filter(absent).collect();
        let here: Vec<String> = missing.iter().filter(|name| text.contains(name.as_str())).cloned().collect();
        if here.is_empty() { missing } else { here }
    }

    /// The line on which a dotted name stands first.
    fn line_of(&self, name: &str) -> usize {
        let found = self.source.lines().position(|line| line.contains(name));
        let root = name.split('.').next().unwrap_or(name);
        found.or_else(|| self.source.lines().position(|line| line.contains(root))).map_or(1, |line| line + 1)
    }
}

fn is_unknown_word(error: &minijinja::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownFunction | ErrorKind::UnknownTest)
}

/// Names with hyphens mean in a message what they mean in an expression.
fn quoted(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((at, close)) = next_block(rest) {
        out.push_str(&rest[..at]);
        let inside = &rest[at..];
        let end = inside.find(close).unwrap_or(inside.len());
        out.push_str(&quote_hyphens(&inside[..end]));
        rest = &inside[end..];
    }
    out.push_str(rest);
    out
}

/// Every `a.b-c.d` inside of `{{ }}` and `{% %}`, outside of quotes.
fn dotted_names(source: &str) -> Vec<String> {
    let mut names = vec![];
    let mut rest = source;
    while let Some((at, close)) = next_block(rest) {
        let inside = &rest[at..];
        let end = inside.find(close).unwrap_or(inside.len());
        let mut quote: Option<char> = None;
        let mut name = String::new();
        for c in inside[..end].chars().chain([' ']) {
            let in_name = c.is_alphanumeric() || matches!(c, '_' | '.') || (c == '-' && name.contains('.'));
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if in_name => name.push(c),
                None => {
                    quote = Some(c).filter(|c| matches!(c, '"' | '\''));
                    names.push(std::mem::take(&mut name));
                }
            }
        }
        rest = &inside[end..];
    }
    let whole = |name: &String| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    names.into_iter().map(|name| name.trim_end_matches(['-', '.']).to_owned()).filter(whole).collect()
}

/// Where the inside of the next `{{ }}` or `{% %}` begins, and what closes it.
fn next_block(text: &str) -> Option<(usize, &'static str)> {
    let open = |mark: &str, close: &'static str| text.find(mark).map(|at| (at + mark.len(), close));
    [open("{{", "}}"), open("{%", "%}")].into_iter().flatten().min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(parts: &[(Part, &str)]) -> Messages {
        let mut messages = Messages::default();
        for (part, source) in parts {
            messages.add("cart", *part, source).unwrap();
        }
        messages
    }

    fn scope() -> Scope {
        let mut scope = Scope::new();
        scope.set("event", json!({"first_name": "Ada <3", "email": "ada@example.com", "city": null, "zip": " "}));
        scope.set_step_output("make-code", json!({"code": "SAVE10"}));
        scope
    }

    #[test]
    fn every_part_is_filled_in_and_only_html_is_escaped() {
        let messages = messages(&[
            (Part::Subject, "Your cart, {{ event.first_name }}\n"),
            (Part::Text, "Hello {{ event.first_name }}, use {{ steps.make-code.output.code }}."),
            (Part::Html, "<p>Hello {{ event.first_name }}, {{ vars.offer }}</p>"),
        ]);
        let message = messages.render("cart", &scope(), Some(&json!({"offer": "10 % off"}))).unwrap();
        assert_eq!(message.subject, "Your cart, Ada <3");
        assert_eq!(message.text.as_deref(), Some("Hello Ada <3, use SAVE10."));
        assert_eq!(message.html.as_deref(), Some("<p>Hello Ada &lt;3, 10 % off</p>"));
    }

    #[test]
    fn what_is_absent_null_or_empty_is_never_sent() {
        for name in ["event.absent", "event.city", "event.zip", "vars.offer", "steps.make-code.output.id"] {
            let messages = messages(&[(Part::Subject, "x"), (Part::Text, &format!("one\nHello {{{{ {name} }}}}"))]);
            let problem = messages.render("cart", &scope(), None).unwrap_err().0;
            assert!(problem.contains("`cart.txt`, line 2"), "{problem}");
            assert!(problem.contains(&format!("`{name}` has no value here")), "{problem}");
        }
    }

    #[test]
    fn an_author_may_say_what_stands_in_for_what_is_missing() {
        let text = "Hello {{ event.city | default('friend') }}{% if event.zip %} in {{ event.zip }}{% endif %}";
        let messages = messages(&[(Part::Subject, "x"), (Part::Text, text)]);
        assert_eq!(messages.render("cart", &scope(), None).unwrap().text.as_deref(), Some("Hello friend"));
    }

    #[test]
    fn mistakes_are_found_when_it_is_read() {
        let mut messages = Messages::default();
        let problem = messages.add("cart", Part::Text, "one\n{{ event.email").unwrap_err();
        assert_eq!(problem.line, 2, "{problem:?}");
        let problem = messages.add("cart", Part::Text, "{{ event.name | uper }}").unwrap_err();
        assert!(problem.message.contains("uper"), "{problem:?}");
        let unknown = messages.render("cart", &scope(), None).unwrap_err().0;
        assert!(unknown.contains("no template `cart`"), "{unknown}");
    }

    #[test]
    fn what_a_message_reads_is_known_before_any_event() {
        let messages =
            messages(&[(Part::Text, "a\n{{ evnt.email }} {% for item in event.items %}{{ item.name }}{% endfor %}")]);
        let reads = messages.get("cart").unwrap().reads();
        let names: Vec<(&str, usize)> = reads.iter().map(|(_, name, line)| (name.as_str(), *line)).collect();
        assert_eq!(names, [("event.items", 2), ("evnt.email", 2)]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z{}%# .|()'-]{0,60}") {
            let mut messages = Messages::default();
            if messages.add("m", Part::Html, &text).is_ok() {
                let _ = messages.render("m", &scope(), None);
            }
        }
    }
}
