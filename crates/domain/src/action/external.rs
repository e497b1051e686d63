//! Actions that reach out: each needs a destination, and what it does is an effect.

use super::{ParameterType, Spec, parameter};

pub(super) static HTTP_REQUEST: Spec = Spec {
    name: "http.request",
    about: "Sends one HTTP request. Any 2xx is success; the answer is the step's output.",
    destination: "http",
    destination_required: false,
    parameters: &[
        parameter(
            "method",
            ParameterType::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            false,
            "The method; POST when left out.",
        ),
        parameter("url", ParameterType::Text, true, "Absolute, or relative to the destination's base_url."),
        parameter("headers", ParameterType::Map, false, "More request headers."),
        parameter("query", ParameterType::Map, false, "Query parameters, percent-encoded for you."),
        parameter("json", ParameterType::Any, false, "The body as JSON."),
        parameter("form", ParameterType::Map, false, "The body as a form."),
        parameter("text", ParameterType::Text, false, "The body as plain text."),
        parameter(
            "idempotency_header",
            ParameterType::Text,
            false,
            "Says that the destination recognises a repeated key in this header; the effect's key is sent in it. Makes the effect keyed.",
        ),
        parameter(
            "verify",
            ParameterType::Map,
            false,
            "A GET (url, headers) that answers 2xx when the effect is there and 404 when it is not. Makes the effect verifiable.",
        ),
        parameter(
            "class",
            ParameterType::OneOf(&["natural", "keyed", "verifiable", "blind"]),
            false,
            "What the destination does with a repeat, when the method does not say it: natural means that a repeat changes nothing.",
        ),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an unknown outcome is sent again, so the effect may happen twice.",
        ),
        parameter("accept_status", ParameterType::Numbers, false, "More statuses that count as success."),
        parameter("timeout", ParameterType::Duration, false, "Shorter than the destination's own."),
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
            "Its value: who this is. Empty means the job is dead for want of an identity.",
        ),
        parameter(
            "fields",
            ParameterType::Map,
            true,
            "Field names to values; a null clears a field, an undefined one is left out.",
        ),
        parameter(
            "mode",
            ParameterType::OneOf(&["upsert", "update_only"]),
            false,
            "update_only never creates; an absent record is then a recorded no-op.",
        ),
    ],
};

pub(super) static POSTGRES_UPSERT: Spec = Spec {
    name: "postgres.upsert",
    about: "Inserts or updates one row, and in the same transaction notes the effect in the table sluice_effects: a second run \
            finds the note and changes nothing. Its output has the columns of `returning`.",
    destination: "postgres",
    destination_required: true,
    parameters: &[
        parameter("table", ParameterType::Text, true, "The table, with or without its schema."),
        parameter(
            "key",
            ParameterType::Texts,
            true,
            "The columns of a unique index: who this row is about. An empty value means the job is dead for want of an identity.",
        ),
        parameter(
            "values",
            ParameterType::Map,
            true,
            "Column names to values; a null clears a column, an undefined one is left out.",
        ),
        parameter("returning", ParameterType::Texts, false, "The columns of the output; those of `key` when left out."),
    ],
};

pub(super) static EMAIL_SEND: Spec = Spec {
    name: "email.send",
    about: "Sends one mail over SMTP. Its Message-ID is made of the effect's key, so that a repeat can be recognised; nobody \
            can ask a mail server what it has taken, so an unknown outcome waits for a person.",
    destination: "smtp",
    destination_required: true,
    parameters: &[
        parameter(
            "to",
            ParameterType::Texts,
            true,
            "Addresses, such as ada@example.com or Ada <ada@example.com>. Empty means the job is dead for want of an identity.",
        ),
        parameter("cc", ParameterType::Texts, false, "More addresses, for all to see."),
        parameter("bcc", ParameterType::Texts, false, "More addresses, for nobody to see."),
        parameter("reply_to", ParameterType::Texts, false, "Where answers go."),
        parameter("from", ParameterType::Text, false, "The sender, when it is not the destination's."),
        parameter("subject", ParameterType::Text, true, "The subject."),
        parameter("text", ParameterType::Text, false, "The body as plain text; this or `html` must be there."),
        parameter("html", ParameterType::Text, false, "The body as HTML; beside `text` it is the alternative."),
        parameter("headers", ParameterType::Map, false, "More headers, such as List-Unsubscribe."),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an unknown outcome is sent again, so the mail may arrive twice.",
        ),
    ],
};

pub(super) static SCRIPT: Spec = Spec {
    name: "script",
    about: "Runs a program in the directory of the configuration. It finds BODY, EVENT, IDEMPOTENCY_KEY (the message's) and EFFECT_KEY in its environment; \
            the last line of its standard output, if it is JSON, is the step's output. Exit code 0 is success, 75 means try \
            again later, 64 and 65 mean never, anything else is a failure that is tried again.",
    destination: "script",
    destination_required: false,
    parameters: &[
        parameter(
            "runtime",
            ParameterType::Text,
            false,
            "What runs `script`: node:18, python:3 or bash, or a later version. `uses:` on the step says the same.",
        ),
        parameter(
            "script",
            ParameterType::Text,
            false,
            "The program itself, taken as it stands: no {{ … }} and no ${secrets.NAME} is filled in.",
        ),
        parameter("command", ParameterType::Texts, false, "A program and its arguments, instead of `script`."),
        parameter(
            "env",
            ParameterType::Map,
            false,
            "More of its environment; ${secrets.NAME} is filled in. Nothing else of Sluice's own environment is handed on but PATH, HOME, LANG, TZ and TMPDIR.",
        ),
        parameter(
            "body",
            ParameterType::Any,
            false,
            "What BODY holds, as JSON; the body of the request when left out.",
        ),
        parameter("event", ParameterType::Any, false, "What EVENT holds, as JSON; the event when left out."),
        parameter(
            "class",
            ParameterType::OneOf(&["natural", "keyed", "blind"]),
            false,
            "What a repeat does. keyed, when left out: the script uses IDEMPOTENCY_KEY. blind: it does not, so an unknown outcome waits for a person.",
        ),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an unknown outcome of a blind script is run again, so its effect may happen twice.",
        ),
        parameter(
            "timeout",
            ParameterType::Duration,
            false,
            "When it is killed, with all that it started; 30s when left out.",
        ),
    ],
};

pub(super) static SLACK_POST: Spec = Spec {
    name: "slack.post",
    about: "Posts one message. With a token it can be read back whether it is there, and the output has ts and channel; behind \
            an incoming webhook nobody can tell, so an unknown outcome waits for a person.",
    destination: "slack",
    destination_required: true,
    parameters: &[
        parameter(
            "channel",
            ParameterType::Text,
            false,
            "The channel's id, such as C0123456789; must be there with a token. A webhook has its own.",
        ),
        parameter(
            "text",
            ParameterType::Text,
            false,
            "The text; beside `blocks` it is what notifications show. This or `blocks` must be there.",
        ),
        parameter("blocks", ParameterType::Any, false, "A list of blocks, as Slack defines them."),
        parameter("thread_ts", ParameterType::Text, false, "The message to answer in its thread."),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an unknown outcome behind a webhook is sent again, so the message may appear twice.",
        ),
    ],
};

pub(super) static SEND_TEMPLATE: Spec = Spec {
    name: "messaging.send_template",
    about: "Sends a message that is written in the files templates/NAME.subject, NAME.txt and NAME.html of the configuration, \
            filled in with the event. What the message reads and the event lacks makes the job a dead letter: nothing is sent \
            with a gap in it. Otherwise it is an email.send.",
    destination: "smtp",
    destination_required: true,
    parameters: &[
        parameter("template", ParameterType::Text, true, "The name of the message."),
        parameter(
            "to",
            ParameterType::Texts,
            true,
            "Addresses, such as ada@example.com or Ada <ada@example.com>. Empty means the job is dead for want of an identity.",
        ),
        parameter("vars", ParameterType::Map, false, "More values for the message, which reads them as vars.NAME."),
        parameter("channel", ParameterType::OneOf(&["email"]), false, "By which way; email when left out."),
        parameter("from", ParameterType::Text, false, "The sender, when it is not the destination's."),
        parameter("cc", ParameterType::Texts, false, "More addresses, for all to see."),
        parameter("bcc", ParameterType::Texts, false, "More addresses, for nobody to see."),
        parameter("reply_to", ParameterType::Texts, false, "Where answers go."),
        parameter("headers", ParameterType::Map, false, "More headers, such as List-Unsubscribe."),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: an unknown outcome is sent again, so the message may arrive twice.",
        ),
    ],
};
