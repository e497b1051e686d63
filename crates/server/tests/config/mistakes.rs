//! What `check` says about a mistake, word for word, for a person and for a machine.

use std::io;

use sluice_domain::verify::SecretValue;
use sluice_server::config::{Colours, Files, SecretSource, Severity, compile, render_all};

use crate::editor;

/// Knows one secret.
#[derive(Debug)]
struct OneSecret;

impl SecretSource for OneSecret {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok((name == "KNOWN").then(|| SecretValue::from("c2VjcmV0")))
    }

    fn describe(&self, name: &str) -> String {
        format!("set the environment variable SLUICE_SECRET_{name} or write it to the file secrets/{name}")
    }
}

const FLOW: &str = "\
name: signup
triggers:
  - http:
      path: /signup
      verify:
        scheme: stripe
        secret: ${secrets.KNOWN}
      idempotency:
        key_from: body.id
event:
  type: lead.created
  identity:
    email: body.email
  required: [identity.email]
steps:
  - name: enqueue
    queue:
      name: people
";

const WORKER: &str = "\
name: people-upsert
consumes: people
retry:
  strategy: exponential
  base_delay: 2s
  max_attempts: 7
  on_exhausted: dlq:people-dlq
run:
  - id: look-up
    run: http.request
    with:
      method: GET
      url: https://directory.example/{{ event.email }}
  - id: upsert
    if: {{ steps.look-up.output.status == 200 }}
    run: salesforce.upsert
    with:
      object: Contact
      external_id_field: Ext__c
      external_id: {{ event.event_id }}
      fields:
        Email: {{ event.email }}
";

const REST: &str = "\
queues:
  - name: people
    visibility_timeout: 90s
  - name: people-dlq
destinations:
  crm:
    type: salesforce
    instance_url: https://acme.my.salesforce.com
    auth:
      token: ${secrets.KNOWN}
";

fn good() -> Vec<(&'static str, String)> {
    vec![("flow.yml", FLOW.to_owned()), ("rest.yml", REST.to_owned()), ("worker.yml", WORKER.to_owned())]
}

/// The good configuration after these replacements, each of which must hit exactly one place.
fn edited(edits: &[(&str, &str)]) -> Files {
    let mut files = good();
    for (old, new) in edits {
        let hits: usize = files.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    Files::from_texts(files)
}

fn shown(files: &Files) -> String {
    let compiled = compile(files, &OneSecret);
    let errors = compiled.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    assert_eq!(compiled.config.is_none(), errors > 0, "a configuration is there if and only if nothing is an error");
    for problem in &compiled.problems {
        assert_eq!(problem.code, problem.code.to_ascii_lowercase(), "codes are kebab-case");
    }
    let mut text = render_all(&compiled.problems, files, Colours::None);
    text.push('\n');
    for problem in &compiled.problems {
        text.push_str(&format!("{}\n", problem.to_json()));
    }
    text
}

#[test]
fn unmodified_configuration_has_no_errors() {
    assert_eq!(shown(&edited(&[])), "no problems\n\n");
    editor::accepts(&edited(&[]));
}

macro_rules! mistakes {
    ($($name:ident: $($edits:expr),+;)+) => {
        $(
            #[test]
            fn $name() {
                let files = edited(&[$($edits),+]);
                insta::assert_snapshot!(stringify!($name), shown(&files));
            }
        )+
    };
}

mistakes! {
    a_fallback_that_hides_a_missing_identity: ("    email: body.email", "    email: {{ body.email | default('none') }}\n    contact_external_id: {{ 'forms:' ~ body.person_id }}\n    phone: {{ body.phone | default('') }}"), ("key_from: body.id", "key_from: [body.id, body.list or 'main']"), ("{{ event.event_id }}", "{{ event.person | default('x') }}");
    a_result_that_is_no_path: ("steps:\n  - name: enqueue", "responses: {result: {id: people-upsert, other: [1]}}\nsteps:\n  - name: enqueue");
    fields_that_cannot_be_converted: ("    email: body.email", "    email: {from: body.email, as: mail}\n    phone: {from: body.phone, as: phone, region: Narnia, zone: UTC}\n    due: {from: body.due, as: date, format: tomorrow}\n    answer: {from: body.answers, take: text}\n    other: {from: body.answers, where: {a b: x}, wehre: y}");
    a_misspelt_key_of_a_flow: ("idempotency:", "idempotancy:");
    a_misspelt_key_of_a_retry_policy: ("max_attempts: 7", "max_atempts: 7");
    a_key_that_is_nothing_like_ours: ("consumes: people", "consumes: people\ncolour: red");
    a_key_twice: ("base_delay: 2s", "base_delay: 2s\n  base_delay: 3s");
    a_key_without_a_value: ("base_delay: 2s", "base_delay:");
    a_missing_name: ("name: signup\n", "");
    a_duration_without_a_unit: ("base_delay: 2s", "base_delay: 2");
    a_word_that_is_not_one_of_them: ("strategy: exponential", "strategy: exponental");
    no_attempts_at_all: ("max_attempts: 7", "max_attempts: 0");
    no_jitter: ("max_attempts: 7", "jitter: none");
    keys_of_two_strategies: ("strategy: exponential", "strategy: phased");
    an_unknown_queue_in_a_flow: ("queue:\n      name: people", "queue: poeple");
    an_unknown_queue_in_a_worker: ("consumes: people", "consumes: persons-of-interest");
    an_unknown_dead_letter_queue: ("dlq:people-dlq", "dlq:people-dql");
    a_dead_letter_queue_without_its_prefix: ("dlq:people-dlq", "people-dlq");
    dead_letters_that_go_round: ("dlq:people-dlq", "dlq:people");
    a_queue_without_a_worker: ("  - name: people-dlq", "  - name: people-dlq\n  - name: forgotten");
    a_name_that_is_taken: ("destinations:", "  - name: people\ndestinations:");
    an_unknown_action: ("run: salesforce.upsert", "run: salesforce.upsrt");
    a_script_with_the_parameters_of_another_action: ("run: salesforce.upsert", "uses: node:18\n    script: |\n      console.log(1)");
    an_unknown_parameter: ("external_id: {{", "externalid: {{");
    a_parameter_of_the_wrong_shape: ("method: GET", "method: FETCH\n      accept_status: 404");
    a_class_without_its_means: ("method: GET", "method: POST\n      class: keyed");
    a_step_that_has_not_run_yet: ("https://directory.example/{{ event.email }}", "https://directory.example/{{ steps.upsert.output.id }}");
    an_unknown_step: ("steps.look-up.output", "steps.lookup.output");
    an_unknown_root: ("email: body.email", "email: {{ bdy.email }}");
    a_root_left_out: ("email: body.email", "email: {{ email }}");
    an_unknown_filter: ("Email: {{ event.email }}", "Email: {{ event.email | lowre }}");
    an_expression_that_is_none: ("Email: {{ event.email }}", "Email: {{ event. }}");
    a_template_that_does_not_end: ("Email: {{ event.email }}", "Email: \"{{ event.email\"");
    a_secret_that_is_not_set: ("secret: ${secrets.KNOWN}", "secret: ${secrets.STRIPE_SIGNING}");
    a_secret_in_plain_text: ("token: ${secrets.KNOWN}", "token: 00D5g000004abcd");
    a_secret_under_with: ("object: Contact", "object: Contact\n      password: hunter2");
    a_secret_under_an_unknown_key: ("type: salesforce", "type: salesforce\n    password: 12345");
    a_secret_in_a_file_that_cannot_be_read: ("token: ${secrets.KNOWN}", "token: abc: def");
    a_dead_letter_loop_in_a_step: ("    run: salesforce.upsert", "    retry: {on_exhausted: \"dlq:people\"}\n    run: salesforce.upsert");
    a_secret_in_an_event: ("type: lead.created", "type: lead.${secrets.KNOWN}");
    a_secret_in_an_expression: ("external_id: {{ event.event_id }}", "external_id: {{ secrets.KNOWN }}");
    a_secret_with_an_impossible_name: ("secret: ${secrets.KNOWN}", "secret: ${secrets.../etc/passwd}");
    an_unknown_scheme: ("scheme: stripe", "scheme: strype");
    a_scheme_without_a_secret: ("        secret: ${secrets.KNOWN}\n", "");
    a_setting_that_the_scheme_has_no_use_for: ("scheme: stripe", "scheme: github\n        header: X-Sig");
    no_verification: ("      verify:\n        scheme: stripe\n        secret: ${secrets.KNOWN}\n", "");
    no_idempotency: ("      idempotency:\n        key_from: body.id\n", ""), ("scheme: stripe", "scheme: bearer");
    a_key_that_is_remembered_too_shortly: ("key_from: body.id", "key_from: body.id\n        ttl: 24h");
    a_key_with_a_time_of_sending: ("key_from: body.id", "key_from: [body.id, body.sent_at]");
    a_key_in_stretches_without_a_time: ("key_from: body.id", "key_from: {fields: [body.cart], bucket: 5m}"), ("scheme: stripe", "scheme: bearer");
    a_key_with_an_id_that_nothing_names: ("key_from: body.id", "key_from: [source, event_id]"), ("scheme: stripe", "scheme: bearer");
    a_misspelt_key_of_a_key: ("key_from: body.id", "key_from: {fields: [body.cart], buket: 5m, at: body.created}");
    a_flow_that_believes_everybody: ("      verify:\n        scheme: stripe\n        secret: ${secrets.KNOWN}\n", "      verify: none\n");
    a_schema_that_is_none: ("type: lead.created", "type: lead.created\n  schema: {type: 5}");
    a_schema_in_no_file: ("type: lead.created", "type: lead.created\n  schema: schemas/lead.json");
    an_identity_that_is_never_mapped: ("  identity:\n    email: body.email\n  required: [identity.email]", "  require_identity: true");
    a_content_window_without_end: ("      idempotency:", "      dedup: {content_window: 9d, on_clash: merge}\n      idempotency:");
    former_key_names: ("      idempotency:", "      dedup: {second_net: 15m}\n      answer: 200\n      idempotency:"), ("max_attempts: 7", "max_attempts: 7\n  max_attempts_maybe: 3"), ("method: GET", "method: POST\n      repeat: allowed");
    events_at_no_path: ("      idempotency:", "      body: {events: \"a b\", format: xml}\n      idempotency:");
    a_key_that_is_none: ("key_from: body.id", "key_from: id");
    another_key_in_a_step: ("      name: people\n", "      name: people\n      key_from: body.other\n");
    a_path_without_a_slash: ("path: /signup", "path: signup");
    a_required_field_that_is_never_filled: ("required: [identity.email]", "required: [identity.mail]");
    an_unknown_destination: ("run: salesforce.upsert", "run: salesforce.upsert\n    destination: cmr");
    a_destination_of_the_wrong_type: ("run: http.request", "run: http.request\n    destination: crm");
    an_unknown_destination_type: ("type: salesforce", "type: salesforse");
    two_destinations_to_choose_from: ("destinations:", "destinations:\n  other: {type: salesforce, instance_url: https://b.example, auth: {token: ${secrets.KNOWN}}}");
    an_attempt_shorter_than_its_call: ("visibility_timeout: 90s", "visibility_timeout: 10s");
    a_flow_and_a_worker_in_one: ("consumes: people", "consumes: people\ntriggers: []");
    a_rule_of_time_that_is_none: ("consumes: people", "schedule: {cron: \"*/10 * *\"}");
    a_type_that_no_flow_makes: ("consumes: people", "on: shop.cart.abandoned");
    alerts: ("destinations:", "alerts: []\ndestinations:");
    a_kind_that_is_misspelt: ("consumes: people", "consume: people");
    tabs: ("  base_delay: 2s", "\tbase_delay: 2s");
    a_colon_in_plain_text: ("type: lead.created", "type: lead: created");
    two_steps_of_one_name: ("id: upsert", "id: look-up");
    a_worker_without_steps: ("run:\n  - id: look-up\n    run: http.request\n    with:\n      method: GET\n      url: https://directory.example/{{ event.email }}\n", "runs: []\n"), ("  - id: upsert\n    if: {{ steps.look-up.output.status == 200 }}\n    run: salesforce.upsert\n    with:\n      object: Contact\n      external_id_field: Ext__c\n      external_id: {{ event.event_id }}\n      fields:\n        Email: {{ event.email }}\n", "");
    everything_at_once: ("path: /signup", "path: signup"), ("max_attempts: 7", "max_attempts: many"), ("object: Contact", "objekt: Contact"), ("type: salesforce", "type: sf");
}

#[test]
fn two_flows_on_one_path() {
    let mut files = good();
    files.push(("more.yml", FLOW.replace("name: signup", "name: other")));
    let files = Files::from_texts(files);
    insta::assert_snapshot!("two_flows_on_one_path", shown(&files));
}

#[test]
fn no_flow_at_all() {
    let files = Files::from_texts([("rest.yml", REST), ("worker.yml", WORKER)]);
    insta::assert_snapshot!("no_flow_at_all", shown(&files));
}

#[test]
fn file_of_another_program() {
    let mut files = good();
    files.push(("package.json", "{\n  \"name\": \"site\",\n  \"version\": \"1.0.0\"\n}\n".into()));
    files.push(("todo.yml", "- buy milk\n".into()));
    files.push(("empty.yml", "# nothing yet\n".into()));
    let files = Files::from_texts(files);
    insta::assert_snapshot!("file_of_another_program", shown(&files));
}

#[test]
fn default_retry_policy_without_attempts() {
    let mut files = good();
    files.push((
        "retry.json",
        "{\"retry\": {\"strategy\": \"exponential\", \"base_ms\": 500, \"max_attempts\": 0}}".into(),
    ));
    let files = Files::from_texts(files);
    insta::assert_snapshot!("default_retry_policy_without_attempts", shown(&files));
}

#[test]
fn a_small_file_that_would_grow_without_end() {
    let mut text = "queues:\n  a0: &a0 {retention: 1d}\nx0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for n in 1..9 {
        let alias = format!("*x{}", n - 1);
        text.push_str(&format!("x{n}: &x{n} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    let files = Files::from_texts([("bomb.yml", text)]);
    let compiled = compile(&files, &OneSecret);
    assert!(compiled.config.is_none());
    assert!(compiled.problems.iter().any(|problem| problem.code == "file-too-large"));
    let deep = format!("queues: {}{}", "[".repeat(60), "]".repeat(60));
    let files = Files::from_texts([("deep.yml", deep)]);
    let compiled = compile(&files, &OneSecret);
    assert!(compiled.problems.iter().any(|problem| problem.code == "file-too-deep"));
}

#[test]
fn no_secret_is_shown_in_any_message() {
    let files = edited(&[
        ("token: ${secrets.KNOWN}", "token: hunter2"),
        ("object: Contact", "object: Contact\n      password: hunter3"),
    ]);
    let said = shown(&files);
    assert!(said.contains("secret-in-file"), "{said}");
    assert!(!said.contains("hunter") && !said.contains("c2VjcmV0"), "{said}");
}

#[test]
fn the_reference_page() {
    insta::assert_snapshot!("reference", sluice_server::config::reference());
}

/// The warnings of a configuration as `code: message; hint`.
fn warnings(files: &[(&str, String)]) -> Vec<String> {
    let files = Files::from_texts(files.iter().map(|(path, text)| (*path, text.as_str())));
    let compiled = compile(&files, &OneSecret);
    let shown = render_all(&compiled.problems, &files, Colours::None);
    assert!(compiled.problems.iter().all(|problem| problem.severity == Severity::Warning), "{shown}");
    let text = |problem: &sluice_server::config::ConfigProblem| {
        format!("{}: {}; {}", problem.code, problem.message, problem.hint.as_deref().unwrap_or_default())
    };
    compiled.problems.iter().map(text).collect()
}

fn files(flow: String, worker: String) -> [(&'static str, String); 3] {
    [("flow.yml", flow), ("worker.yml", worker), ("rest.yml", REST.to_owned())]
}

#[test]
fn unquoted_text_that_looks_like_a_path_is_a_warning() {
    let mapped = |text: &str| {
        let attributes = format!("    email: body.email\n  attributes:\n    company: {text}\n");
        files(FLOW.replace("    email: body.email\n", &attributes), WORKER.to_owned())
    };
    let warned = warnings(&mapped("bdy.company"));
    assert_eq!(
        warned,
        [
            "path-as-text: `bdy.company` is used as text: it is no value; did you mean `body.company`? Put text in quotes"
        ]
    );
    let warned = warnings(&mapped("company.name"));
    assert_eq!(
        warned,
        [
            "path-as-text: `company.name` is used as text: it is no value; did you mean `body.company.name`? Put text in quotes"
        ]
    );
    for good in ["body.company", "\"bdy.company\"", "\"{{ body.company }}\"", "Acme Inc.", "v1", "1.5"] {
        assert!(warnings(&mapped(good)).is_empty(), "{good}");
    }
    let worker = WORKER.replace("Email: {{ event.email }}", "Email: event.email");
    assert_eq!(
        warnings(&files(FLOW.to_owned(), worker)),
        [
            "path-as-text: `event.email` is used as text: it is no value; did you mean {{ event.email }}? Put text in quotes"
        ]
    );
}

#[test]
fn a_field_that_no_flow_maps_is_a_warning() {
    let attributes = "    email: body.email\n  attributes: { first_name: body.first_name }\n";
    let flow = FLOW.replace("    email: body.email\n", attributes);
    let reads = |text: &str| {
        let worker = WORKER.replace("Email: {{ event.email }}", &format!("Email: \"{text}\""));
        warnings(&files(flow.clone(), worker))
    };
    assert_eq!(
        reads("{{ event.firstname }}"),
        [
            "field-not-mapped: `event.firstname` never has a value: the mapping of `signup` has no such field; did you mean `event.first_name`?"
        ]
    );
    let far = reads("{{ event.shoe_size | default('?') }}");
    assert!(
        far[0].ends_with("map it under `event: attributes:` of `signup`, or read the request: body.shoe_size"),
        "{far:?}"
    );
    for good in
        ["{{ event.first_name | upper }}", "{{ event.attributes.any }}", "{{ event.event_type }}", "{{ body.x }}"]
    {
        assert!(reads(good).is_empty(), "{good}");
    }
    let open = WORKER.replace("Email: {{ event.email }}", "Email: \"{{ event.anything }}\"");
    assert!(warnings(&files(FLOW.to_owned(), open)).is_empty(), "the whole body is mapped");
}

#[test]
fn a_message_that_reads_a_field_which_no_flow_maps_is_a_warning() {
    let attributes = "    email: body.email\n  attributes: { first_name: body.first_name }\n";
    let flow = FLOW.replace("    email: body.email\n", attributes);
    let steps = WORKER.find("run:").map_or(WORKER, |at| &WORKER[..at]);
    let worker = format!(
        "{steps}run:\n  - name: welcome\n    run: messaging.send_template\n    destination: mail\n    with: {{ template: welcome, to: \"{{{{ event.email }}}}\" }}\n"
    );
    let with_message = |subject: &str, text: &str| {
        let mut all = files(flow.clone(), worker.clone()).to_vec();
        let mail =
            "destinations: { mail: { type: smtp, host: 127.0.0.1, port: 1025, tls: none, from: a@example.org } }\n";
        all.push(("mail.yml", mail.to_owned()));
        all.push(("templates/welcome.subject", subject.to_owned()));
        all.push(("templates/welcome.txt", text.to_owned()));
        warnings(&all)
    };
    let warned = with_message("Hello {{ event.firstname }}", "Dear {{ event.first_name }},\n{{ event.shoe_size }}\n");
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(warned[0].contains("`event.firstname` never has a value") && warned[0].contains("`event.first_name`?"));
    assert!(warned[1].contains("`event.shoe_size` never has a value"), "{warned:?}");
    assert!(with_message("Hello", "Dear {{ event.first_name }}, {{ event.identity.email }}").is_empty());
}

#[test]
fn an_empty_required_parameter_is_missing() {
    let worker = WORKER.replace("object: Contact", "object: \"\"");
    let files = files(FLOW.to_owned(), worker);
    let files = Files::from_texts(files.iter().map(|(path, text)| (*path, text.as_str())));
    let problems = compile(&files, &OneSecret).problems;
    assert_eq!(problems[0].message, "salesforce.upsert needs the parameter `object`");
}
