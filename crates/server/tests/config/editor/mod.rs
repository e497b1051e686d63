//! The schema for editors beside `check`: it accepts what `check` accepts, and refuses what `check` refuses, as far as a single
//! document can show it.

#![allow(dead_code)]

use std::sync::OnceLock;

use serde_json::Value;
use sluice_domain::schema::Schema;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Compiled, Files, SecretSource, Severity, documents, editor_schema};

/// Knows every secret.
#[derive(Debug)]
pub struct AnySecret;

impl SecretSource for AnySecret {
    fn lookup(&self, name: &str) -> std::io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(format!("hunter2-{name}"))))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

/// Mistakes that no schema of a single document can see, and why.
const ONLY_THE_WHOLE: &[(&str, &str)] = &[
    ("an_unknown_queue_in_a_flow", NAMES),
    ("an_unknown_queue_in_a_worker", NAMES),
    ("an_unknown_queue_to_put_into", NAMES),
    ("an_unknown_queue_to_pull_from", NAMES),
    ("an_unknown_dead_letter_queue", NAMES),
    ("a_pull_from_a_queue_without_dead_letters", NAMES),
    ("dead_letters_that_go_round", NAMES),
    ("a_dead_letter_loop_in_a_step", NAMES),
    ("an_unknown_destination", NAMES),
    ("a_destination_of_the_wrong_type", NAMES),
    ("two_destinations_to_choose_from", NAMES),
    ("two_flows_on_one_path", NAMES),
    ("two_policies_for_everything", NAMES),
    ("no_flow_at_all", NAMES),
    ("a_flow_that_nothing_works_on", NAMES),
    ("a_type_that_no_flow_has", NAMES),
    ("a_schema_in_no_file", NAMES),
    ("a_list_that_is_not_there", NAMES),
    ("a_policy_that_is_not_there", NAMES),
    ("a_breaker_of_nothing", NAMES),
    ("a_question_to_an_unknown_slack", NAMES),
    ("a_question_to_a_slack_that_cannot_be_believed", NAMES),
    // Whether it needs a channel is said by the destination: a token does, a webhook has its own.
    ("a_question_to_no_channel", NAMES),
    ("a_safer_message_that_is_not_there", NAMES),
    ("a_message_that_is_not_there", NAMES),
    ("a_message_that_does_not_close", MESSAGES),
    ("a_message_that_is_handed_too_little", MESSAGES),
    ("a_message_that_reads_a_step_that_is_not_there", MESSAGES),
    ("a_message_that_reads_nothing_known", MESSAGES),
    ("a_message_with_a_filter_that_nobody_knows", MESSAGES),
    ("a_message_without_a_body", MESSAGES),
    ("a_message_without_a_subject", MESSAGES),
    ("a_safer_message_that_is_handed_too_little", MESSAGES),
    ("a_secret_that_is_not_set", "secrets are not in the files"),
    ("a_missing_runtime", "what is installed is not in the files"),
    ("a_step_that_has_not_run_yet", EXPRESSIONS),
    ("an_unknown_step", EXPRESSIONS),
    ("an_unknown_step_to_list", EXPRESSIONS),
    ("an_unknown_root", EXPRESSIONS),
    ("a_root_left_out", EXPRESSIONS),
    ("an_unknown_filter", EXPRESSIONS),
    ("an_expression_that_is_none", EXPRESSIONS),
    ("a_secret_in_an_expression", EXPRESSIONS),
    ("a_policy_that_reads_a_step", EXPRESSIONS),
    ("a_name_that_is_taken", ITEMS),
    ("two_steps_of_one_name", ITEMS),
    ("another_key_in_a_step", TWO_VALUES),
    ("a_required_field_that_is_never_filled", TWO_VALUES),
    ("a_span_that_ends_before_it_begins", TWO_VALUES),
];

pub const NAMES: &str = "names lead from one file to another";
pub const EXPRESSIONS: &str = "a schema does not read expressions";
pub const MESSAGES: &str = "messages are files of their own, without a schema";
pub const ITEMS: &str = "two items of one list may not have one name; a schema compares whole items only";
pub const TWO_VALUES: &str = "a schema does not compare two values";

/// What the schema says against a document.
pub fn refuses(document: &Value) -> Vec<String> {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| Schema::new(&editor_schema()).expect("it is a schema"));
    schema.check(document).iter().map(ToString::to_string).collect()
}

/// What the schema says against every document.
pub fn refusals(files: &Files) -> Vec<String> {
    let mut found = vec![];
    for (file, document) in documents(files) {
        match document {
            None => found.push(format!("{file}: no parser reads it")),
            Some(document) => found.extend(refuses(&document).into_iter().map(|said| format!("{file}{said}"))),
        }
    }
    found
}

/// What is right to `check` is right to an editor.
#[track_caller]
pub fn accepts(files: &Files) {
    let refusals = refusals(files);
    assert!(refusals.is_empty(), "the schema refuses what `check` accepts:\n{}", refusals.join("\n"));
}

/// What is wrong to `check` is wrong to an editor, or listed.
#[track_caller]
pub fn agrees(name: &str, compiled: &Compiled, files: &Files) {
    let refusals = refusals(files);
    let listed = ONLY_THE_WHOLE.iter().any(|(listed, _)| *listed == name);
    let is_error = |severity| severity == Severity::Error;
    if compiled.problems.iter().any(|problem| is_error(problem.severity)) {
        assert_ne!(refusals.is_empty(), !listed, "{name}: the schema says {refusals:?}; listed: {listed}");
    } else if !compiled.problems.iter().any(|problem| problem.code == "not-ours") {
        accepts(files);
    }
}
