//! Actions that stay inside: no destination, no request. What they leave lies in the ledger, or follows from the event.

use super::{ParameterType, Spec, parameter};

pub(super) static COMPUTE_DEDUP_KEY: Spec = Spec {
    name: "utils.compute_dedup_key",
    about: "Makes a key of what the event is about and when the sender says that it happened. Its output has key, and near: the \
            same key in the neighbouring stretch of time, which `store.setnx` looks at too.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter(
            "fields",
            ParameterType::Texts,
            true,
            "Names of fields: looked up in the event, then in the body; a path such as body.cart.id works too. One that is a \
             moment (timestamp, occurred_at, or a name that ends in _at) is cut into stretches of time.",
        ),
        parameter(
            "bucket_minutes",
            ParameterType::Number,
            false,
            "How long such a stretch is; left out, a moment counts to the millisecond.",
        ),
    ],
};

pub(super) static STORE_SETNX: Spec = Spec {
    name: "store.setnx",
    about: "Sets a mark, unless it is set. Its output has set: true for the job that set it, in every retry and replay of it, \
            and false for every other, with owner_event.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter(
            "key",
            ParameterType::Text,
            true,
            "What is marked; most often the key of a `utils.compute_dedup_key` step.",
        ),
        parameter(
            "ttl_seconds",
            ParameterType::Number,
            false,
            "For how long, in seconds; this or `ttl` must be there.",
        ),
        parameter("ttl", ParameterType::Duration, false, "The same, such as 45m."),
        parameter(
            "store",
            ParameterType::Text,
            false,
            "Marks of one store know nothing of another's; `default` when left out.",
        ),
    ],
};

pub(super) static QUEUE_PULL: Spec = Spec {
    name: "queue_pull",
    about: "Looks for dead letters. Its output has messages: each with body, headers, job, event_id, idempotency_key, attempts and \
            error. They stay where they are until a `queue` step brings them back to life. Written as a key of the step.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("from", ParameterType::Text, true, "The dead-letter queue."),
        parameter(
            "max_messages",
            ParameterType::Number,
            false,
            "How many, oldest first; 20 when left out, 1000 at the most.",
        ),
        parameter(
            "max_replays",
            ParameterType::Number,
            false,
            "One that was replayed this often is left for a person; 5 when left out.",
        ),
    ],
};

pub(super) static QUEUE: Spec = Spec {
    name: "queue",
    about: "Puts something into a queue, under a key. A message of `queue_pull` is replayed: the same event, the same key, and what \
            was applied stays applied; one that has succeeded meanwhile is left alone. Anything else becomes an event of its own. \
            Written as a key of the step.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("name", ParameterType::Text, true, "The queue."),
        parameter(
            "body_from",
            ParameterType::Text,
            false,
            "An expression: what its workers see as `body`; the body of this event when left out.",
        ),
        parameter(
            "key_from",
            ParameterType::Text,
            false,
            "An expression: the key under which it is accepted once; the key of this event, the step and the item when left out.",
        ),
    ],
};

pub(super) static POLICY_CHECK: Spec = Spec {
    name: "policy.check",
    about: "Asks a policy without doing anything. Its output has allowed, and where that is false policy, rule and reason. A cap \
            is only looked at: a step with `policy:` takes a place under it.",
    destination: "",
    destination_required: false,
    parameters: &[parameter("policy", ParameterType::Text, true, "The name of the policy.")],
};

pub(super) static CONSENT_SET: Spec = Spec {
    name: "consent.set",
    about: "Keeps what the contact agreed to, or withdrew, for policies with `consent: {purpose: …}`. What was said last counts, \
            by the time that the event says. Its output has granted and purpose.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter(
            "granted",
            ParameterType::Any,
            true,
            "Yes or no: true, yes, granted, subscribed, or false, no, withdrawn, unsubscribed.",
        ),
        parameter("purpose", ParameterType::Text, false, "To what; marketing when left out."),
        parameter("contact", ParameterType::Text, false, "Who; event.email, then event.phone when left out."),
    ],
};

pub(super) static APPROVAL_REQUEST: Spec = Spec {
    name: "approval.request",
    about: "Asks a person, and lets the job wait for the answer; waiting costs no attempt. Approved, the job goes on, and the \
            output has approved, by and reason. Rejected, the job ends as a no-op. Answers come from `sluice approvals`, the API \
            or a button in Slack; the first one counts.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("title", ParameterType::Text, true, "What is asked, in one line."),
        parameter("summary", ParameterType::Text, false, "And in more words."),
        parameter("expires", ParameterType::Duration, false, "For how long the job waits; 24h when left out."),
        parameter(
            "default",
            ParameterType::OneOf(&["approve", "reject"]),
            false,
            "The answer when nobody has given one by then; reject when left out.",
        ),
        parameter(
            "slack",
            ParameterType::Map,
            false,
            "Where to ask as well: destination, of type slack and with a signing_secret, and channel.",
        ),
    ],
};
