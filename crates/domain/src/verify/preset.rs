//! Facts about each sender besides its signature: ids, types, times, retries, responses.
//!
//! A single table, since these facts change with the senders. The configuration can override each of them.

use std::time::Duration;

use super::freshness::TimestampUnit::{self, Iso8601, Milliseconds, Seconds};
use super::scheme::Scheme;

/// Member names from the outside in; for a form, the single name of a field including brackets.
pub type FieldPath = &'static [&'static str];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLocation {
    Header(&'static str),
    /// In the body; in the single event if the body holds several.
    Body(FieldPath),
}

/// A value joined from parts. It exists if every part has a value: a part that is missing never counts as empty, because
/// different events would get one id.
pub type CompositeField = &'static [FieldLocation];

/// Format of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// One event, in JSON.
    Json,
    /// One event, as a form.
    Form,
    /// Either, by content type.
    JsonOrForm,
    /// Several events in JSON, at a path of nested lists; empty if the body is the list.
    Events(FieldPath),
}

/// Response that a sender treats as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    Any2xx,
    Exactly200,
}

/// Facts about a sender.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Alternatives for the event id, in order of preference. If none applies, type and content identify the event.
    pub event_id: &'static [CompositeField],
    /// Alternatives for the event type, in order of preference.
    pub event_type: &'static [CompositeField],
    /// Alternatives for the time of the event, in order of preference.
    pub occurred_at: &'static [(FieldLocation, TimestampUnit)],
    /// Time after the first attempt during which the sender may retry. `None` if not published, zero if it never retries.
    pub retry_horizon: Option<Duration>,
    pub body: BodyForm,
    /// Fields that may differ between two deliveries of the same event.
    pub volatile: &'static [FieldPath],
    /// Fields that hold a secret and must be removed before the body is stored or passed on.
    pub secret_fields: &'static [FieldPath],
    pub success: Success,
}

/// No facts known; each entry lists its differences.
const UNKNOWN: Preset = Preset {
    event_id: &[],
    event_type: &[],
    occurred_at: &[],
    retry_horizon: None,
    body: BodyForm::Json,
    volatile: &[],
    secret_fields: &[],
    success: Success::Any2xx,
};

const fn minutes(minutes: u64) -> Option<Duration> {
    Some(Duration::from_secs(minutes * 60))
}

const fn hours(hours: u64) -> Option<Duration> {
    minutes(hours * 60)
}

use FieldLocation::{Body, Header};

const TYPE: &[CompositeField] = &[&[Body(&["type"])]];
const EVENT_ID: &[CompositeField] = &[&[Body(&["event_id"])]];

/// Retries after 5 s, 5 min, 30 min, 2, 5, 10, 14, 20 and 24 h, as suggested by the specification.
static STANDARD_WEBHOOKS: Preset = Preset {
    event_id: &[&[Header("webhook-id")], &[Header("svix-id")]],
    event_type: TYPE,
    occurred_at: &[(Body(&["timestamp"]), Iso8601)],
    retry_horizon: Some(Duration::from_secs(5 + 35 * 60 + 75 * 3600)),
    ..UNKNOWN
};

/// Retries after 5 s, 5 min, 30 min, 2, 5, 10 and 10 h.
static SVIX: Preset = Preset {
    event_id: &[&[Header("svix-id")], &[Header("webhook-id")]],
    retry_horizon: Some(Duration::from_secs(5 + 35 * 60 + 27 * 3600)),
    ..STANDARD_WEBHOOKS
};

static STRIPE: Preset = Preset {
    event_id: &[&[Body(&["id"])]],
    event_type: TYPE,
    occurred_at: &[(Body(&["created"]), Seconds)],
    retry_horizon: hours(72),
    volatile: &[&["pending_webhooks"]],
    ..UNKNOWN
};

/// The event id is equal for all matching subscriptions; the webhook id is not.
static SHOPIFY: Preset = Preset {
    event_id: &[&[Header("shopify-event-id")], &[Header("x-shopify-event-id")]],
    event_type: &[&[Header("shopify-topic")], &[Header("x-shopify-topic")]],
    occurred_at: &[(Header("shopify-triggered-at"), Iso8601), (Header("x-shopify-triggered-at"), Iso8601)],
    retry_horizon: hours(4),
    ..UNKNOWN
};

/// No automatic retries; a person can redeliver for three days.
static GITHUB: Preset = Preset {
    event_id: &[&[Header("x-github-delivery")]],
    event_type: &[&[Header("x-github-event")]],
    retry_horizon: hours(72),
    body: BodyForm::JsonOrForm,
    ..UNKNOWN
};

static META: Preset = Preset {
    event_id: &[&[Body(&["value", "leadgen_id"])]],
    event_type: &[&[Body(&["field"])]],
    occurred_at: &[(Body(&["value", "created_time"]), Seconds)],
    retry_horizon: hours(36),
    body: BodyForm::Events(&["entry", "changes"]),
    success: Success::Exactly200,
    ..UNKNOWN
};

/// Retries after 5, 10, 20 min, 1, 2, 3 and 4 h for most failures; for 10 h in short intervals for the others.
static TYPEFORM: Preset = Preset {
    event_id: EVENT_ID,
    event_type: &[&[Body(&["event_type"])]],
    occurred_at: &[(Body(&["form_response", "submitted_at"]), Iso8601)],
    retry_horizon: minutes(635),
    ..UNKNOWN
};

/// HubSpot does not guarantee a unique `eventId`. Only changes of a property have a `propertyName`; changes of an association and
/// merges have no `objectId`. App webhooks are retried for 24 h, workflow webhooks for 3 days.
static HUBSPOT: Preset = Preset {
    event_id: &[
        &[
            Body(&["portalId"]),
            Body(&["subscriptionId"]),
            Body(&["objectId"]),
            Body(&["subscriptionType"]),
            Body(&["propertyName"]),
            Body(&["occurredAt"]),
            Body(&["eventId"]),
        ],
        &[
            Body(&["portalId"]),
            Body(&["subscriptionId"]),
            Body(&["objectId"]),
            Body(&["subscriptionType"]),
            Body(&["occurredAt"]),
            Body(&["eventId"]),
        ],
    ],
    event_type: &[&[Body(&["subscriptionType"])]],
    occurred_at: &[(Body(&["occurredAt"]), Milliseconds)],
    retry_horizon: hours(72),
    body: BodyForm::Events(&[]),
    volatile: &[&["attemptNumber"]],
    ..UNKNOWN
};

/// An invitee can be marked as a no-show more than once; each mark has a URI of its own.
static CALENDLY: Preset = Preset {
    event_id: &[
        &[Body(&["payload", "no_show", "uri"]), Body(&["event"])],
        &[Body(&["payload", "uri"]), Body(&["event"])],
    ],
    event_type: &[&[Body(&["event"])]],
    occurred_at: &[(Body(&["created_at"]), Iso8601)],
    retry_horizon: hours(24),
    ..UNKNOWN
};

/// Retries at once, after 1 min and after 5 min. `token` is Slack's deprecated credential, equal in every request.
static SLACK: Preset = Preset {
    event_id: EVENT_ID,
    event_type: TYPE,
    occurred_at: &[(Body(&["event_time"]), Seconds)],
    retry_horizon: minutes(6),
    body: BodyForm::JsonOrForm,
    secret_fields: &[&["token"]],
    ..UNKNOWN
};

/// An inbound message has no `MessageStatus`. One call sends several requests with one `CallStatus`; only its status callbacks
/// are numbered.
static TWILIO: Preset = Preset {
    event_id: &[
        &[Header("i-twilio-idempotency-token")],
        &[Body(&["MessageSid"]), Body(&["MessageStatus"])],
        &[Body(&["MessageSid"]), Body(&["SmsStatus"])],
        &[Body(&["CallSid"]), Body(&["CallStatus"]), Body(&["SequenceNumber"])],
    ],
    event_type: &[&[Body(&["MessageStatus"])]],
    body: BodyForm::JsonOrForm,
    ..UNKNOWN
};

static SENDGRID: Preset = Preset {
    event_id: &[&[Body(&["sg_event_id"])]],
    event_type: &[&[Body(&["event"])]],
    occurred_at: &[(Body(&["timestamp"]), Seconds)],
    retry_horizon: hours(24),
    body: BodyForm::Events(&[]),
    ..UNKNOWN
};

/// `cleaned` and `upemail` have no `data[id]`: their content identifies them.
static MAILCHIMP: Preset = Preset {
    event_id: &[&[Body(&["type"]), Body(&["data[list_id]"]), Body(&["data[id]"]), Body(&["fired_at"])]],
    event_type: TYPE,
    occurred_at: &[(Body(&["fired_at"]), Iso8601)],
    retry_horizon: minutes(75),
    body: BodyForm::Form,
    ..UNKNOWN
};

static INTERCOM: Preset = Preset {
    event_id: &[&[Body(&["id"])]],
    event_type: &[&[Body(&["topic"])]],
    occurred_at: &[(Body(&["created_at"]), Seconds)],
    volatile: &[&["delivery_attempts"], &["delivery_status"], &["delivered_at"]],
    ..UNKNOWN
};

static ZENDESK: Preset = Preset {
    event_id: &[&[Header("x-zendesk-webhook-invocation-id")], &[Body(&["id"])]],
    event_type: TYPE,
    occurred_at: &[(Body(&["time"]), Iso8601)],
    ..UNKNOWN
};

/// The delivery id is a hash of the current second, which two orders can share. A deleted resource and a customer who was never
/// changed have no `date_modified_gmt`. No retries.
static WOOCOMMERCE: Preset = Preset {
    event_id: &[&[Header("x-wc-webhook-topic"), Body(&["id"]), Body(&["date_modified_gmt"])]],
    event_type: &[&[Header("x-wc-webhook-topic")]],
    occurred_at: &[(Body(&["date_modified_gmt"]), Iso8601)],
    retry_horizon: minutes(0),
    ..UNKNOWN
};

static SQUARE: Preset = Preset {
    event_id: EVENT_ID,
    event_type: TYPE,
    occurred_at: &[(Body(&["created_at"]), Iso8601)],
    retry_horizon: hours(24),
    ..UNKNOWN
};

static PADDLE: Preset = Preset {
    event_id: EVENT_ID,
    event_type: &[&[Body(&["event_type"])]],
    occurred_at: &[(Body(&["occurred_at"]), Iso8601)],
    retry_horizon: hours(72),
    volatile: &[&["notification_id"]],
    success: Success::Exactly200,
    ..UNKNOWN
};

/// Three attempts, 10 min apart. The `id` of a form submission is its own; that of a collection item is the item's, which changes
/// again and again.
static WEBFLOW: Preset = Preset {
    event_id: &[
        &[Body(&["payload", "id"]), Body(&["payload", "submittedAt"])],
        &[Body(&["payload", "id"]), Body(&["payload", "lastUpdated"])],
    ],
    event_type: &[&[Body(&["triggerType"])]],
    occurred_at: &[(Body(&["payload", "submittedAt"]), Iso8601)],
    retry_horizon: minutes(20),
    success: Success::Exactly200,
    ..UNKNOWN
};

/// Every 5 min for 8 h; published for social actions only.
static LINKEDIN: Preset = Preset {
    event_id: &[&[Body(&["notificationId"])], &[Body(&["leadGenFormResponse"]), Body(&["leadAction"])]],
    event_type: TYPE,
    occurred_at: &[(Body(&["occurredAt"]), Milliseconds)],
    retry_horizon: hours(8),
    ..UNKNOWN
};

/// `payload.object.id` is the meeting or the webinar: two people can register for it or join it in one millisecond.
static ZOOM: Preset = Preset {
    event_id: &[&[
        Body(&["event"]),
        Body(&["event_ts"]),
        Body(&["payload", "object", "id"]),
        Body(&["payload", "object", "registrant", "id"]),
    ]],
    event_type: &[&[Body(&["event"])]],
    occurred_at: &[(Body(&["event_ts"]), Milliseconds)],
    ..UNKNOWN
};

static TIKTOK: Preset = Preset {
    event_id: &[&[Body(&["event"]), Body(&["create_time"]), Body(&["user_openid"]), Body(&["content"])]],
    event_type: &[&[Body(&["event"])]],
    occurred_at: &[(Body(&["create_time"]), Seconds)],
    ..UNKNOWN
};

/// Retries after 10, 15, 30 min, 1, 2 and 4 h. The signature does not cover the event and could be attached to another one,
/// so it is not stored either.
static MAILGUN: Preset = Preset {
    event_id: &[&[Body(&["event-data", "id"])]],
    event_type: &[&[Body(&["event-data", "event"])]],
    retry_horizon: hours(8),
    body: BodyForm::JsonOrForm,
    volatile: &[&["signature"], &["timestamp"], &["token"]],
    secret_fields: &[&["signature"], &["token"]],
    success: Success::Exactly200,
    ..UNKNOWN
};

static GOOGLE_ADS: Preset = Preset { event_id: &[&[Body(&["lead_id"])]], secret_fields: &[&["google_key"]], ..UNKNOWN };

/// Retries after 3, 30 and 150 s. In version 1 `meta.id` is the record, and `meta.object` stands for `meta.entity`.
static PIPEDRIVE: Preset = Preset {
    event_id: &[
        &[Body(&["meta", "entity"]), Body(&["meta", "id"])],
        &[Body(&["meta", "object"]), Body(&["meta", "id"]), Body(&["meta", "timestamp_micro"])],
    ],
    event_type: &[
        &[Body(&["meta", "action"]), Body(&["meta", "entity"])],
        &[Body(&["meta", "action"]), Body(&["meta", "object"])],
    ],
    volatile: &[&["meta", "attempt"], &["retry"]],
    occurred_at: &[(Body(&["meta", "timestamp"]), Iso8601)],
    retry_horizon: Some(Duration::from_secs(183)),
    ..UNKNOWN
};

/// Retries after 1, 5, 10, 10, 10, 15, 30 min, 1, 2 and 6 h. One message has a delivery for each recipient and any number of opens
/// and clicks, and a `SubscriptionChange` may have no message: only bounces and complaints have an id of their own.
static POSTMARK: Preset = Preset {
    event_id: &[&[Body(&["RecordType"]), Body(&["ID"])]],
    event_type: &[&[Body(&["RecordType"])]],
    occurred_at: &[
        (Body(&["BouncedAt"]), Iso8601),
        (Body(&["DeliveredAt"]), Iso8601),
        (Body(&["ReceivedAt"]), Iso8601),
        (Body(&["ChangedAt"]), Iso8601),
    ],
    retry_horizon: minutes(621),
    success: Success::Exactly200,
    ..UNKNOWN
};

/// A notification without an id of its own and without an etag is identified by its content.
static MICROSOFT_GRAPH: Preset = Preset {
    event_id: &[
        &[Body(&["id"])],
        &[Body(&["subscriptionId"]), Body(&["resource"]), Body(&["resourceData", "@odata.etag"])],
    ],
    event_type: &[&[Body(&["changeType"])]],
    retry_horizon: hours(4),
    body: BodyForm::Events(&["value"]),
    volatile: &[&["subscriptionExpirationDateTime"]],
    secret_fields: &[&["clientState"]],
    ..UNKNOWN
};

/// General schemes imply no sender.
static GENERAL: Preset = Preset { body: BodyForm::JsonOrForm, ..UNKNOWN };

/// Facts about the sender that uses this scheme.
pub fn preset(scheme: Scheme) -> &'static Preset {
    match scheme {
        Scheme::StandardWebhooks => &STANDARD_WEBHOOKS,
        Scheme::Svix => &SVIX,
        Scheme::Stripe => &STRIPE,
        Scheme::Shopify => &SHOPIFY,
        Scheme::Github => &GITHUB,
        Scheme::Meta => &META,
        Scheme::Typeform => &TYPEFORM,
        Scheme::Hubspot => &HUBSPOT,
        Scheme::Calendly => &CALENDLY,
        Scheme::Slack => &SLACK,
        Scheme::Twilio => &TWILIO,
        Scheme::Sendgrid => &SENDGRID,
        Scheme::Mailchimp => &MAILCHIMP,
        Scheme::Intercom => &INTERCOM,
        Scheme::Zendesk => &ZENDESK,
        Scheme::Woocommerce => &WOOCOMMERCE,
        Scheme::Square => &SQUARE,
        Scheme::Paddle => &PADDLE,
        Scheme::Webflow => &WEBFLOW,
        Scheme::Linkedin => &LINKEDIN,
        Scheme::Zoom => &ZOOM,
        Scheme::Tiktok => &TIKTOK,
        Scheme::Mailgun => &MAILGUN,
        Scheme::GoogleAds => &GOOGLE_ADS,
        Scheme::Pipedrive => &PIPEDRIVE,
        Scheme::Postmark => &POSTMARK,
        Scheme::MicrosoftGraph => &MICROSOFT_GRAPH,
        Scheme::Hmac | Scheme::Bearer | Scheme::Token | Scheme::Basic | Scheme::None => &GENERAL,
    }
}
