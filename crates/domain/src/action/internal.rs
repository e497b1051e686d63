//! Internal actions: no destination, no request. Their results are stored in the ledger or follow from the event.

use super::{ParameterType, Spec, parameter};

pub(super) static COMPUTE_DEDUP_KEY: Spec = Spec {
    name: "utils.compute_dedup_key",
    about: "Computes a key from fields of the event and the sender's time. Its output has key, and adjacent: the same key in the adjacent \
            time bucket, which `store.setnx` checks too.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter(
            "fields",
            ParameterType::Texts,
            true,
            "Names of fields, looked up in the event, then in the body; a path such as body.cart.id works too. A time \
             (timestamp, occurred_at, or a name that ends in _at) is rounded down to its time bucket.",
        ),
        parameter(
            "bucket_minutes",
            ParameterType::Number,
            false,
            "Length of a time bucket; without it a time counts to the millisecond.",
        ),
    ],
};

pub(super) static STORE_SETNX: Spec = Spec {
    name: "store.setnx",
    about: "Sets a mark, unless it is set. Its output has set: true for the job that set it, in every retry and replay of that job, \
            and false for every other job, with owner_event.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("key", ParameterType::Text, true, "The mark; usually the key of a `utils.compute_dedup_key` step."),
        parameter("ttl_seconds", ParameterType::Number, false, "Lifetime in seconds; this or `ttl` is required."),
        parameter("ttl", ParameterType::Duration, false, "Lifetime, such as 45m."),
        parameter("store", ParameterType::Text, false, "Namespace of the mark; `default` if left out."),
    ],
};

pub(super) static QUEUE_PULL: Spec = Spec {
    name: "queue_pull",
    about: "Reads dead letters. Its output has messages: each with body, headers, job, event_id, idempotency_key, attempts and \
            error. They stay dead until a `queue` step replays them. Written as a key of the step.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("from", ParameterType::Text, true, "The dead-letter queue."),
        parameter(
            "max_messages",
            ParameterType::Number,
            false,
            "Maximum number, oldest first; default 20, at most 1000.",
        ),
        parameter(
            "max_replays",
            ParameterType::Number,
            false,
            "Skips a dead letter that was replayed this often; default 5.",
        ),
    ],
};

pub(super) static QUEUE: Spec = Spec {
    name: "queue",
    about: "Puts a message into a queue, under a key. A message of `queue_pull` is replayed: same event, same key, and applied \
            effects are not repeated; a job that has succeeded meanwhile is skipped. Anything else becomes a new event. \
            Written as a key of the step.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("name", ParameterType::Text, true, "The queue."),
        parameter(
            "body_from",
            ParameterType::Text,
            false,
            "Expression for the `body` that its workers see; default: the body of this event.",
        ),
        parameter(
            "key_from",
            ParameterType::Text,
            false,
            "Expression for the idempotency key of the message; default: the key of this event, the step and the item.",
        ),
    ],
};

pub(super) static POLICY_CHECK: Spec = Spec {
    name: "policy.check",
    about: "Evaluates a policy without an effect. Its output has allowed, and if that is false policy, rule and reason. A cap is \
            only checked; a step with `policy:` reserves it.",
    destination: "",
    destination_required: false,
    parameters: &[parameter("policy", ParameterType::Text, true, "The name of the policy.")],
};

pub(super) static CONSENT_SET: Spec = Spec {
    name: "consent.set",
    about: "Records consent that the contact gave or withdrew, for policies with `consent: {purpose: …}`. The entry with the latest \
            event time wins. Its output has granted and purpose.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter(
            "granted",
            ParameterType::Any,
            true,
            "Whether consent is given: true, yes, granted, subscribed, or false, no, withdrawn, unsubscribed.",
        ),
        parameter("purpose", ParameterType::Text, false, "Purpose of the consent; default marketing."),
        parameter("contact", ParameterType::Text, false, "The contact; default event.email, then event.phone."),
    ],
};

pub(super) static APPROVAL_REQUEST: Spec = Spec {
    name: "approval.request",
    about: "Requests an approval and defers the job until it is decided; waiting costs no attempt. If approved, the job continues, and the \
            output has approved, by and reason. If rejected, the job ends as a no-op. Decisions come from `sluice approvals`, the API \
            or a button in Slack; the first one counts.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("title", ParameterType::Text, true, "The question, in one line."),
        parameter("summary", ParameterType::Text, false, "Details of the question."),
        parameter("expires", ParameterType::Duration, false, "Maximum waiting time; default 24h."),
        parameter(
            "default",
            ParameterType::OneOf(&["approve", "reject"]),
            false,
            "Decision if none is made in time; default reject.",
        ),
        parameter(
            "slack",
            ParameterType::Map,
            false,
            "Also asks in Slack: destination, of type slack and with a signing_secret, and channel.",
        ),
    ],
};
