//! External actions that store objects and lines, send mail through Amazon SES, and push to browsers.

use super::external::MAIL_PARAMETERS;
use super::{ParameterType, Spec, parameter};

pub(super) static S3_PUT: Spec = Spec {
    name: "s3.put",
    about: "Stores one object under a key that has none yet. If there is one with the same content, nothing changes; with another content, \
            the job becomes a dead letter. Its output has url, etag and created.",
    destination: "s3",
    destination_required: true,
    parameters: &[
        parameter(
            "key",
            ParameterType::Text,
            true,
            "Key of the object, such as leads/{{ event.id }}.json; the prefix of the destination comes before it.",
        ),
        parameter("json", ParameterType::Any, false, "The content as JSON; this or `text` is required."),
        parameter("text", ParameterType::Text, false, "The content as text."),
        parameter("content_type", ParameterType::Text, false, "Default: application/json, or text/plain in UTF-8."),
        parameter("overwrite", ParameterType::Flag, false, "true: an object with this key is replaced."),
    ],
};

pub(super) static SES_SEND: Spec = Spec {
    name: "ses.send",
    about: "Sends one mail through Amazon SES. `messaging.send_template` can use a destination of this type too. The effect key is a tag of the mail. SES \
            has no idempotency key and no search, so an effect with an unknown outcome waits for an operator. Its output has id.",
    destination: "ses",
    destination_required: true,
    parameters: MAIL_PARAMETERS,
};

pub(super) static WEB_PUSH_SEND: Spec = Spec {
    name: "webpush.send",
    about: "Sends one message to a browser, encrypted for it. Accepted does not mean delivered, and there is no receipt, so an effect with an unknown outcome \
            waits for an operator. A subscription that is gone makes a dead letter of class identity.",
    destination: "webpush",
    destination_required: true,
    parameters: &[
        parameter(
            "subscription",
            ParameterType::Any,
            true,
            "The subscription as the browser has it: a map with endpoint and keys (p256dh, auth), or its JSON.",
        ),
        parameter(
            "json",
            ParameterType::Any,
            false,
            "The message as JSON, at most 3,993 bytes; this or `text` is required.",
        ),
        parameter("text", ParameterType::Text, false, "The message as text."),
        parameter(
            "ttl",
            ParameterType::Text,
            false,
            "Seconds that the push service keeps it for; default 2419200, four weeks.",
        ),
        parameter(
            "urgency",
            ParameterType::OneOf(&["very-low", "low", "normal", "high"]),
            false,
            "Whether a device that saves power receives it now.",
        ),
        parameter(
            "topic",
            ParameterType::Text,
            false,
            "A message replaces an earlier one of this topic that is not delivered yet; at most 32 letters, digits, - and _.",
        ),
        parameter(
            "resend",
            ParameterType::OneOf(&["allowed", "never"]),
            false,
            "allowed: a message with an unknown outcome is sent again and may be shown twice.",
        ),
    ],
};

pub(super) static FILE_APPEND: Spec = Spec {
    name: "file.append",
    about: "Appends one line of JSON with the effect key and the record, and syncs it to the disk. After an unknown outcome the file is searched for the line.",
    destination: "file",
    destination_required: true,
    parameters: &[parameter("record", ParameterType::Any, true, "What the line holds under `record`.")],
};
