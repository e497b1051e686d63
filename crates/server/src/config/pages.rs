//! Reference pages of their own: steps, actions and expressions. Made from the tables, the catalogue and the engine itself.

use std::fmt::Write;

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::template::{Expression, Function, Scope};

use super::expression::{ACCEPTED, REQUEST, WORKED, WORKED_ITEM};
use super::parameters;
use super::reference::{cell, tables, write_table};

/// The tables that stand on the page about steps, in this order, and not on the page about the configuration.
pub(super) const STEPS: [&str; 13] = [
    "a worker",
    "what a worker consumes",
    "a schedule",
    "a step",
    "a pull",
    "the queue of a worker's step",
    "a pace",
    "an undo",
    "a step of a flow",
    "the queue of a step",
    "a retry policy",
    "a phase",
    "an exponential delay",
];

const ABOUT_STEPS: &str = "\
# Steps

Made by `sluice reference steps`; do not edit it by hand.

A worker does its steps in their order, one job at a time for each person. What a step does is an [action](actions.md); its values are
[expressions](expressions.md). A job keeps the steps that it was accepted with, and the name of a step is part of the name of its effect.
";

/// The page about workers and their steps, in Markdown.
pub fn steps() -> String {
    let mut page = ABOUT_STEPS.to_owned();
    write_tables(&mut page, &STEPS);
    page
}

const ABOUT_ACTIONS: &str = "\
# Actions

Made by `sluice reference actions`; do not edit it by hand.

What `run:` (or `uses:`) of a [step](steps.md) may name, and what its `with:` may hold. Values may be [expressions](expressions.md), apart from `class` and
`resend`, which are decided before any event is there. What a class is, and what happens when nobody knows whether an effect has happened, is in
[Effects](../effects.md).
";

/// The page about actions, in Markdown.
pub fn actions() -> String {
    let mut page = ABOUT_ACTIONS.to_owned();
    page.push_str("\n| action | |\n|---|---|\n");
    for spec in Action::ALL.map(Action::spec) {
        let _ = writeln!(page, "| [`{}`](#{}) | {} |", spec.name, spec.name.replace(['.', '_'], ""), cell(spec.about));
    }
    for action in Action::ALL {
        write_action(&mut page, action);
    }
    page
}

fn write_action(page: &mut String, action: Action) {
    let spec = action.spec();
    let destination = match spec.destination_required {
        _ if action.is_internal() => "Stays inside: it has no destination.".to_owned(),
        true => format!("Needs a destination of type `{}`.", spec.destination),
        false => format!("Uses a destination of type `{}`, or a built-in one when none is named.", spec.destination),
    };
    let _ = write!(page, "\n## {}\n\n{} {destination}\n", spec.name, spec.about);
    if spec.parameters.is_empty() {
        return;
    }
    page.push_str("\n| parameter | value | required | meaning |\n|---|---|---|---|\n");
    for parameter in spec.parameters {
        let required = if parameter.required { "yes" } else { "" };
        let shape = cell(&parameters::describe(&parameter.value_type));
        let _ = writeln!(page, "| `{}` | {shape} | {required} | {} |", parameter.name, cell(parameter.about));
    }
}

/// The tables that stand on the page about policies, in this order, and not on the page about the configuration.
pub(super) const POLICIES: [&str; 9] = [
    "a policy",
    "a rule of a policy",
    "consent",
    "quiet hours",
    "a limit of a policy",
    "suppression",
    "safe mode",
    "what turns safe mode on",
    "an error rate",
];

const ABOUT_POLICIES: &str = "\
# Policies and safe mode

Made by `sluice reference policies`; do not edit it by hand.

A policy says what has to hold before an effect happens. It stands under `policies:`, a [step](steps.md) names it with `policy:`, and what it refuses is a
no-op with the rule that decided. Safe mode is a worker's second way of working, for as long as it is on.
";

/// The page about policies and safe mode, in Markdown.
pub fn policies() -> String {
    let mut page = ABOUT_POLICIES.to_owned();
    write_tables(&mut page, &POLICIES);
    page
}

fn write_tables(page: &mut String, titles: &[&str]) {
    let all = tables();
    for table in titles.iter().filter_map(|title| all.iter().find(|table| table.title == *title)) {
        write_table(page, table);
    }
}

const ABOUT_EXPRESSIONS: &str = "\
# Expressions

Made by `sluice reference expressions`; do not edit it by hand.

`{{ … }}` holds an expression; text may stand around it. A value that is a single expression keeps its type: a number stays a number, a list a list. A
condition (`if:`) is one expression, with or without braces. The language is that of Jinja's expressions: `a.b`, `a[0]`, `a['b-c']`, `+ - * / // % **`, `~`
to join texts, `== != < <= > >=`, `and or not`, `in`, `x if y else z`, lists, maps and filters.

- A hyphen between letters belongs to the name: `steps.look-up.output`. Put spaces around a minus.
- A path through something that is not there has no value, and no error. A text around an expression without a value is an error, so that no customer
  reads an empty greeting: say `{{ body.name | default('there') }}`.
- One evaluation may take 50,000 instructions.
- Secrets are not seen by expressions: write `${secrets.NAME}` beside them.
";

/// What each filter is good for, shown on an example.
const FILTER_EXAMPLES: [(&str, &str); 22] = [
    ("abs", "-3 | abs"),
    ("capitalize", "'ada' | capitalize"),
    ("default", "body.nickname | default('there')"),
    ("first", "body.tags | first"),
    ("float", "'2.5' | float"),
    ("int", "'42' | int"),
    ("items", "body.utm | items"),
    ("join", "body.tags | join(', ')"),
    ("last", "body.tags | last"),
    ("length", "body.tags | length"),
    ("list", "'abc' | list"),
    ("lower", "body.email | lower"),
    ("max", "[3, 9, 4] | max"),
    ("min", "[3, 9, 4] | min"),
    ("replace", "'a-b' | replace('-', ' ')"),
    ("round", "2.567 | round(1)"),
    ("sort", "[3, 1, 2] | sort"),
    ("split", "'a,b' | split(',')"),
    ("string", "42 | string"),
    ("title", "'ada lovelace' | title"),
    ("trim", "'  x ' | trim"),
    ("upper", "'ada' | upper"),
];

fn sample() -> Scope {
    let mut scope = Scope::new();
    let body = json!({
        "email": "Ada@Example.com",
        "phone": "(415) 555-0123",
        "at": "2026-11-15T10:00:00.250Z",
        "tags": ["new", "vip"],
        "utm": { "source": "ads" },
    });
    scope.set("body", body);
    scope
}

/// What an example comes to, by the engine itself.
fn value_of(source: &str) -> String {
    match Expression::parse(source).and_then(|expression| expression.evaluate(&sample())) {
        Ok(Some(value)) => value.to_string(),
        Ok(None) => "no value".to_owned(),
        Err(problem) => problem.to_string(),
    }
}

/// The page about expressions, in Markdown.
pub fn expressions() -> String {
    let mut page = ABOUT_EXPRESSIONS.to_owned();
    page.push_str("\n## What they see\n\n| where | names |\n|---|---|\n");
    let names = |roots: &[&str]| roots.iter().map(|root| format!("`{root}`")).collect::<Vec<_>>().join(", ");
    for (place, roots) in [
        ("a flow's key and its `event:`", REQUEST.roots),
        ("the steps of a flow", ACCEPTED.roots),
        ("the steps of a worker", WORKED),
        ("a step of a worker with `foreach`", WORKED_ITEM),
    ] {
        let _ = writeln!(page, "| {place} | {} |", names(roots));
    }
    page.push_str(
        "\n`body` and `headers` are the request's (names of headers in lower case), `request` has both, `event` is the normalized event, and \
         `steps.NAME.output` is what an earlier step came to. `item` is the item of the list, and `index` its place from 0.\n",
    );
    let sample = sample().get("body").map_or_else(String::new, Value::to_string);
    let _ = write!(page, "\nIn the examples `body` is `{sample}`.\n\n## Functions\n\n");
    page.push_str("Written `email_hash(body.email)` or `body.email | email_hash`.\n\n");
    page.push_str("| function | meaning | example | value |\n|---|---|---|---|\n");
    for function in Function::ALL {
        let example = function.example();
        let (shown, value) = (cell(example), cell(&value_of(example)));
        let _ = writeln!(page, "| `{}` | {} | `{shown}` | `{value}` |", function.name(), function.about());
    }
    page.push_str("\n## Filters\n\nThe usual ones of Jinja; these are the most useful.\n\n");
    page.push_str("| filter | example | value |\n|---|---|---|\n");
    for (name, example) in FILTER_EXAMPLES {
        let _ = writeln!(page, "| `{name}` | `{}` | `{}` |", cell(example), cell(&value_of(example)));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expression::FILTERS;

    #[test]
    fn every_filter_that_is_offered_has_an_example_that_works() {
        let functions = Function::ALL.map(Function::name);
        for filter in FILTERS.iter().filter(|filter| !functions.contains(filter)) {
            assert!(FILTER_EXAMPLES.iter().any(|(name, _)| name == filter), "`{filter}` has no example");
        }
        let examples = FILTER_EXAMPLES.iter().map(|(_, example)| *example).chain(Function::ALL.map(Function::example));
        for example in examples {
            let value = Expression::parse(example).unwrap().evaluate(&sample()).unwrap();
            assert!(value.is_some_and(|value| !value.is_null()), "{example} has no value");
        }
    }

    #[test]
    fn every_table_that_a_page_promises_is_there() {
        let titles: Vec<&str> = tables().iter().map(|table| table.title).collect();
        assert!(STEPS.iter().chain(&POLICIES).all(|title| titles.contains(title)));
    }
}
