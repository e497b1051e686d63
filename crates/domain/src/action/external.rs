//! External actions: each needs a destination and has an effect.

use super::{Parameter, ParameterType, Spec, parameter};

pub(super) static HTTP_REQUEST: Spec = Spec {
    name: "http.request",
    about: "Sends one HTTP request. Any 2xx is success; the response is the step's output.",
    destination: "http",
    destination_required: false,
    parameters: &[
        parameter(
            "method",
            ParameterType::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            false,
            "The method; default POST.",
        ),
        parameter(
            "url",
            ParameterType::Url,
            true,
            "Relative to the destination's base_url and below it, or absolute if it has none. Values are percent-encoded; `| raw_url` marks one that is a whole URL.",
        ),
        parameter("headers", ParameterType::Map, false, "Additional request headers."),
        parameter("query", ParameterType::Map, false, "Query parameters; they are percent-encoded."),
        parameter("json", ParameterType::Any, false, "The body as JSON."),
        parameter("form", ParameterType::Map, false, "The body as a form."),
        parameter("text", ParameterType::Text, false, "The body as plain text."),
        parameter(
            "idempotency_header",
            ParameterType::Text,
            false,
            "Header in which the destination expects an idempotency key; the effect key is sent in it. Makes the effect keyed.",
        ),
        parameter(
            "verify",
            ParameterType::Map,
            false,
            "A GET request (url, headers) that returns 2xx if the effect was applied and 404 if not. With `found`, an expression over its answer, a 2xx counts only if that holds, such as response.body.total > 0. Makes the effect verifiable.",
        ),
        parameter(
            "class",
            ParameterType::OneOf(&["natural", "keyed", "verifiable", "blind"]),
            false,
            "Effect class, if the method does not imply it: natural means that sending it again changes nothing.",
        ),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an effect with an unknown outcome is sent again and may be applied twice.",
        ),
        parameter("accept_status", ParameterType::Numbers, false, "Additional statuses that count as success."),
        parameter(
            "success_if",
            ParameterType::Expression,
            false,
            "Must hold too, for an API that answers 200 to a request that failed; otherwise the job becomes a dead letter. An expression over `response` (status, headers, body), `with` and `effect`, such as not response.body.error.",
        ),
        parameter(
            "result",
            ParameterType::Expressions,
            false,
            "Output of the step in place of status, headers and body: names to expressions over `response`, `with` and `effect`.",
        ),
        parameter("timeout", ParameterType::Duration, false, "Timeout of the request; shorter than the destination's."),
    ],
};

pub(super) static HTTP_UPSERT: Spec = Spec {
    name: "http.upsert",
    about: "Looks for a record by its identity, creates it if there is none, and updates it otherwise: for systems that would make a \
            second record of a second request. Effects of one identity run one after the other, and the id of the record is \
            remembered. Its output has id, identity and created.",
    destination: "http",
    destination_required: true,
    parameters: &[
        parameter(
            "identity",
            ParameterType::Text,
            true,
            "What the record is found by, such as an address or an external id. If it is empty, the job becomes a dead letter of class identity.",
        ),
        parameter(
            "find",
            ParameterType::Map,
            true,
            "The request that looks for the record: method (default GET, POST with a body), url, headers, query, json, form or text; records, a JSON pointer to the list of records in the answer; id, a JSON pointer to the id in a record, or in the answer without records. Status 404 means that there is none.",
        ),
        parameter(
            "create",
            ParameterType::Map,
            true,
            "The request that creates it: method (default POST), url, headers, query, json, form or text; id, a JSON pointer to the id in the answer.",
        ),
        parameter(
            "update",
            ParameterType::Map,
            false,
            "The request that updates it: method (default PATCH), url, headers, query, json, form or text; {id} in its url is the id of the record, and id_at has JSON pointers to places of the body that get it. Without it a record that exists is left alone.",
        ),
        parameter(
            "error_at",
            ParameterType::Text,
            false,
            "JSON pointer to the error of an answer, for systems that answer 200 to a request that failed: a value there that is neither null, false nor empty is a failure.",
        ),
        parameter(
            "retry_on",
            ParameterType::Texts,
            false,
            "Texts in such an error that mean that the request can be sent again. Other errors reject it.",
        ),
    ],
};

pub(super) static SALESFORCE_UPSERT: Spec = Spec {
    name: "salesforce.upsert",
    about: "Creates or updates one record by a unique external id. Its output has id and created.",
    destination: "salesforce",
    destination_required: true,
    parameters: &[
        parameter("object", ParameterType::Text, true, "The object, such as Lead or Contact."),
        parameter("external_id_field", ParameterType::Text, true, "A field that is both External ID and Unique."),
        parameter(
            "external_id",
            ParameterType::Text,
            true,
            "The value of that field. If it is empty, the job becomes a dead letter of class identity.",
        ),
        parameter(
            "fields",
            ParameterType::Map,
            true,
            "Field names to values; null clears a field, an undefined value leaves it unchanged.",
        ),
        parameter(
            "mode",
            ParameterType::OneOf(&["upsert", "update_only"]),
            false,
            "update_only changes a record that exists; `on_absent` says what happens if there is none.",
        ),
        parameter(
            "on_absent",
            ParameterType::OneOf(&["dead_letter", "noop", "create"]),
            false,
            "For update_only, if no record has the external id. dead_letter (default): the job becomes a dead letter of class identity. noop: nothing happens. create: it is created.",
        ),
    ],
};

pub(super) static HUBSPOT_UPSERT: Spec = Spec {
    name: "hubspot.upsert",
    about: "Creates or updates one record by a property with unique values. Its output has id and created.",
    destination: "hubspot",
    destination_required: true,
    parameters: &[
        parameter(
            "object",
            ParameterType::Text,
            true,
            "The object type, such as contacts, companies, deals, tickets or the name or id of a custom type.",
        ),
        parameter(
            "id_property",
            ParameterType::Text,
            true,
            "email (contacts), a property that was created with unique values, or hs_object_id, which only updates.",
        ),
        parameter(
            "id",
            ParameterType::Text,
            true,
            "The value of that property. If it is empty, the job becomes a dead letter of class identity.",
        ),
        parameter(
            "properties",
            ParameterType::Map,
            true,
            "Property names to values; null clears a property, an undefined value leaves it unchanged, a list is a multiple selection.",
        ),
        parameter(
            "associations",
            ParameterType::Any,
            false,
            "Associations of a new record: a list of maps with to (a record id), type (a number) and category (default HUBSPOT_DEFINED). A record that exists keeps its associations; see hubspot.associate.",
        ),
        parameter(
            "mode",
            ParameterType::OneOf(&["upsert", "update_only"]),
            false,
            "update_only changes a record that exists; `on_absent` says what happens if there is none.",
        ),
        parameter(
            "on_absent",
            ParameterType::OneOf(&["dead_letter", "noop", "create"]),
            false,
            "For update_only, if no record has this id. dead_letter (default): the job becomes a dead letter of class identity. noop: nothing happens. create: it is created.",
        ),
    ],
};

pub(super) static HUBSPOT_ASSOCIATE: Spec = Spec {
    name: "hubspot.associate",
    about: "Associates two records. Repeating it changes nothing.",
    destination: "hubspot",
    destination_required: true,
    parameters: &[
        parameter("from_object", ParameterType::Text, true, "Object type of the first record, such as contacts."),
        parameter("from", ParameterType::Text, true, "Id of the first record, such as {{ steps.contact.output.id }}."),
        parameter("to_object", ParameterType::Text, true, "Object type of the second record."),
        parameter("to", ParameterType::Text, true, "Id of the second record."),
        parameter("type", ParameterType::Text, false, "Number of the association type; default: the unlabelled one."),
        parameter(
            "category",
            ParameterType::OneOf(&["HUBSPOT_DEFINED", "USER_DEFINED", "INTEGRATOR_DEFINED"]),
            false,
            "Category of `type`; default HUBSPOT_DEFINED.",
        ),
    ],
};

pub(super) static POSTGRES_UPSERT: Spec = Spec {
    name: "postgres.upsert",
    about: "Inserts or updates one row, and records the effect in the table sluice_effects in the same transaction: a second run \
            finds the entry and changes nothing. Its output has the columns of `returning`.",
    destination: "postgres",
    destination_required: true,
    parameters: &[
        parameter("table", ParameterType::Text, true, "The table, with or without its schema."),
        parameter(
            "key",
            ParameterType::Texts,
            true,
            "The columns of a unique index. If a value is empty, the job becomes a dead letter of class identity.",
        ),
        parameter(
            "values",
            ParameterType::Map,
            true,
            "Column names to values; null clears a column, an undefined value leaves it unchanged.",
        ),
        parameter("returning", ParameterType::Texts, false, "The columns of the output; default: those of `key`."),
    ],
};

/// Parameters of every action that sends one mail.
pub(super) const MAIL_PARAMETERS: &[Parameter] = &[
    parameter(
        "to",
        ParameterType::Texts,
        true,
        "One address, such as ada@example.com or Ada <ada@example.com>, or a list of them; a value of the event is always one. If empty, the job becomes a dead letter of class identity.",
    ),
    parameter("cc", ParameterType::Texts, false, "Additional recipients, visible to all."),
    parameter("bcc", ParameterType::Texts, false, "Additional recipients, hidden from the others."),
    parameter("reply_to", ParameterType::Texts, false, "Address for replies."),
    parameter("from", ParameterType::Text, false, "The sender; default: the destination's."),
    parameter("subject", ParameterType::Text, true, "The subject."),
    parameter("text", ParameterType::Text, false, "The body as plain text; this or `html` is required."),
    parameter("html", ParameterType::Text, false, "The body as HTML; with `text`, both are sent as alternatives."),
    parameter("headers", ParameterType::Map, false, "Additional headers, such as List-Unsubscribe."),
    parameter(
        "resend",
        ParameterType::OneOf(&["allowed", "never"]),
        false,
        "allowed: a mail with an unknown outcome is sent again and may arrive twice.",
    ),
];

pub(super) static EMAIL_SEND: Spec = Spec {
    name: "email.send",
    about: "Sends one mail over SMTP. Its Message-ID is derived from the effect key, so that a duplicate can be recognised. SMTP \
            offers no read-back, so an effect with an unknown outcome waits for an operator.",
    destination: "smtp",
    destination_required: true,
    parameters: MAIL_PARAMETERS,
};

pub(super) static SCRIPT: Spec = Spec {
    name: "script",
    about: "Runs a program in the directory of the configuration. Its environment has BODY, EVENT, IDEMPOTENCY_KEY (the message's), EFFECT_KEY and ATTEMPT (from 1); \
            the last line of its standard output, if it is JSON, is the step's output. Exit code 0 is success, 75 is retried \
            later, 64 and 65 are permanent failures, any other code is a retryable failure.",
    destination: "script",
    destination_required: false,
    parameters: &[
        parameter(
            "runtime",
            ParameterType::Text,
            false,
            "Runtime of `script`: node:18, python:3 or bash, or a later version. Same as `uses:` on the step.",
        ),
        parameter(
            "script",
            ParameterType::Text,
            false,
            "The program, verbatim: {{ … }} and ${secrets.NAME} are not replaced.",
        ),
        parameter("command", ParameterType::Texts, false, "A program and its arguments, instead of `script`."),
        parameter(
            "env",
            ParameterType::Map,
            false,
            "Additional environment variables; ${secrets.NAME} is replaced. Of Sluice's own environment only PATH, HOME, LANG, TZ and TMPDIR are passed on.",
        ),
        parameter("body", ParameterType::Any, false, "Value of BODY, as JSON; default: the body of the request."),
        parameter("event", ParameterType::Any, false, "Value of EVENT, as JSON; default: the event."),
        parameter(
            "class",
            ParameterType::OneOf(&["natural", "keyed", "blind"]),
            false,
            "Effect class; default keyed: the script uses IDEMPOTENCY_KEY. blind: it does not, so an effect with an unknown outcome waits for an operator.",
        ),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: a blind script with an unknown outcome is run again, and its effect may be applied twice.",
        ),
        parameter(
            "timeout",
            ParameterType::Duration,
            false,
            "Time after which it is killed, with its child processes; default 30s.",
        ),
    ],
};

pub(super) static SLACK_POST: Spec = Spec {
    name: "slack.post",
    about: "Posts one message. With a token, the effect can be read back, and the output has ts and channel. An \
            incoming webhook offers no read-back, so an effect with an unknown outcome waits for an operator.",
    destination: "slack",
    destination_required: true,
    parameters: &[
        parameter(
            "channel",
            ParameterType::Text,
            false,
            "The channel's id, such as C0123456789; required with a token. A webhook has a fixed channel.",
        ),
        parameter(
            "text",
            ParameterType::Text,
            false,
            "The text; with `blocks` it is shown in notifications. This or `blocks` is required.",
        ),
        parameter("blocks", ParameterType::Any, false, "A list of Slack blocks."),
        parameter("thread_ts", ParameterType::Text, false, "Timestamp of the message to reply to, in its thread."),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: a webhook message with an unknown outcome is sent again and may appear twice.",
        ),
    ],
};

pub(super) static SEND_TEMPLATE: Spec = Spec {
    name: "messaging.send_template",
    about: "Renders the templates templates/NAME.subject, NAME.txt and NAME.html of the configuration with the event, and sends the \
            result as email.send does. If the event lacks a value that a template reads, the job becomes a dead letter and nothing is \
            sent.",
    destination: "smtp",
    destination_required: true,
    parameters: &[
        parameter("template", ParameterType::Text, true, "The name of the template."),
        parameter(
            "to",
            ParameterType::Texts,
            true,
            "One address, such as ada@example.com or Ada <ada@example.com>, or a list of them; a value of the event is always one. If empty, the job becomes a dead letter of class identity.",
        ),
        parameter("vars", ParameterType::Map, false, "Additional values for the template, as vars.NAME."),
        parameter("channel", ParameterType::OneOf(&["email"]), false, "The channel; default email."),
        parameter("from", ParameterType::Text, false, "The sender; default: the destination's."),
        parameter("cc", ParameterType::Texts, false, "Additional recipients, visible to all."),
        parameter("bcc", ParameterType::Texts, false, "Additional recipients, hidden from the others."),
        parameter("reply_to", ParameterType::Texts, false, "Address for replies."),
        parameter("headers", ParameterType::Map, false, "Additional headers, such as List-Unsubscribe."),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: a message with an unknown outcome is sent again and may arrive twice.",
        ),
    ],
};
