//! Destinations of Amazon and compatible stores, push services of browsers, and files.

use std::path::{Path, PathBuf};

use sluice_domain::destination::{AwsCredentials, FileDestination, S3Destination, SesDestination, WebPushDestination};

use super::destination::{read_revealed, read_url};
use super::fields::Fields;
use super::table::{KeySpec, SectionSpec, ValueType, key};

const REGION: KeySpec = key("region", ValueType::Plain, "Region, such as eu-central-1.");
const ACCESS_KEY_ID: KeySpec = key("access_key_id", ValueType::Plain, "Id of the access key.").required();
const SECRET_ACCESS_KEY: KeySpec = key("secret_access_key", ValueType::Secret, "Secret of the access key.").required();
const SESSION_TOKEN: KeySpec =
    key("session_token", ValueType::Secret, "Token of temporary credentials, which are renewed elsewhere.");
const FAILURE_RULES: KeySpec =
    key("failure_rules", ValueType::Tables("a failure rule"), "What error responses mean; evaluated first.");

pub(super) static S3: SectionSpec = SectionSpec {
    title: "an s3 destination",
    about: "More keys of a destination of `type: s3`: a bucket of Amazon S3 or of a compatible store. The store must support `If-None-Match: *`; one that ignores it overwrites.",
    keys: &[
        key("bucket", ValueType::Plain, "Name of the bucket.").required(),
        REGION.required(),
        key("endpoint", ValueType::Url, "Address of a compatible store, to which the bucket is a path.")
            .or("Amazon S3 in the region"),
        key("prefix", ValueType::Plain, "Text before every key, such as archive/."),
        ACCESS_KEY_ID,
        SECRET_ACCESS_KEY,
        SESSION_TOKEN,
        FAILURE_RULES,
    ],
    later: &[],
    rules: &[],
};

pub(super) static SES: SectionSpec = SectionSpec {
    title: "an ses destination",
    about: "More keys of a destination of `type: ses`: Amazon SES, version 2 of its API. `messaging.send_template` can use it.",
    keys: &[
        REGION.required(),
        key("from", ValueType::Described("an address, or Name <address>"), "Sender: a verified identity.").required(),
        key("configuration_set", ValueType::Plain, "Configuration set, whose events tell what became of a mail."),
        key("base_url", ValueType::Url, "Address of the API.").or("that of the region"),
        ACCESS_KEY_ID,
        SECRET_ACCESS_KEY,
        SESSION_TOKEN,
        FAILURE_RULES,
    ],
    later: &[],
    rules: &[],
};

pub(super) static WEB_PUSH: SectionSpec = SectionSpec {
    title: "a webpush destination",
    about: "More keys of a destination of `type: webpush`: messages to browsers, signed with VAPID keys. `npx web-push generate-vapid-keys` makes them.",
    keys: &[
        key("public_key", ValueType::Plain, "Public VAPID key, base64url; the one that browsers subscribed with.")
            .required(),
        key("private_key", ValueType::Secret, "Private VAPID key, base64url.").required(),
        key("subject", ValueType::Plain, "Contact for push services: mailto: and an address, or an https URL.")
            .required(),
        key(
            "allow_private_addresses",
            ValueType::Flag,
            "Whether the endpoint of a subscription may be a private or loopback address, or plain http.",
        )
        .or("false"),
        FAILURE_RULES,
    ],
    later: &[],
    rules: &[],
};

pub(super) static FILE: SectionSpec = SectionSpec {
    title: "a file destination",
    about: "More keys of a destination of `type: file`: a file on this machine with one line of JSON for each effect. Rotate it by renaming: it is opened for every write.",
    keys: &[
        key("path", ValueType::Plain, "Absolute path of the file. Its directory must exist.").required(),
        key(
            "batch_max",
            ValueType::Count(1, 500),
            "Maximum number of waiting jobs whose lines share a write. 1: every line is synced alone.",
        )
        .or("500"),
    ],
    later: &[],
    rules: &[],
};

fn credentials(fields: &Fields<'_, '_>) -> Option<AwsCredentials> {
    let (id, secret) = (read_revealed(fields, "access_key_id"), fields.secret("secret_access_key"));
    let session_token = match fields.node("session_token") {
        Some(_) => Some(fields.secret("session_token")?),
        None => None,
    };
    Some(AwsCredentials { access_key_id: id?, secret_access_key: secret?, session_token })
}

/// An optional URL; `Some(None)` if it is absent.
fn optional_url(fields: &Fields<'_, '_>, name: &'static str) -> Option<Option<String>> {
    match fields.node(name) {
        Some(_) => read_url(fields, name).map(Some),
        None => Some(None),
    }
}

pub(super) fn read_s3(fields: &Fields<'_, '_>) -> Option<S3Destination> {
    let (bucket, region) = (read_revealed(fields, "bucket"), read_revealed(fields, "region"));
    let (endpoint, credentials) = (optional_url(fields, "endpoint"), credentials(fields));
    let prefix = fields.node("prefix").and_then(|_| read_revealed(fields, "prefix"));
    Some(S3Destination { endpoint: endpoint?, region: region?, bucket: bucket?, prefix, credentials: credentials? })
}

pub(super) fn read_ses(fields: &Fields<'_, '_>) -> Option<SesDestination> {
    let (region, credentials) = (read_revealed(fields, "region"), credentials(fields));
    let (base_url, from) = (optional_url(fields, "base_url"), fields.text("from"));
    if let Some(text) = from
        && !text.contains('@')
    {
        let report = fields.report.error(fields.value_span("from"), "bad-value", format!("`{text}` is not an address"));
        report.hint("such as: Shop <shop@example.com>");
    }
    let configuration_set = fields.node("configuration_set").and_then(|_| read_revealed(fields, "configuration_set"));
    Some(SesDestination {
        region: region?,
        base_url: base_url?,
        credentials: credentials?,
        from: from?.to_owned(),
        configuration_set,
    })
}

pub(super) fn read_web_push(fields: &Fields<'_, '_>) -> Option<WebPushDestination> {
    let (public_key, private_key) = (read_revealed(fields, "public_key"), fields.secret("private_key"));
    let subject = read_revealed(fields, "subject");
    Some(WebPushDestination {
        public_key: public_key?,
        private_key: private_key?,
        subject: subject?,
        allow_private_addresses: fields.flag("allow_private_addresses").unwrap_or(false),
    })
}

pub(super) fn read_file(fields: &Fields<'_, '_>) -> Option<FileDestination> {
    let path = PathBuf::from(read_revealed(fields, "path")?);
    if !path.is_absolute() || path.file_name().is_none() {
        fields
            .report
            .error(fields.value_span("path"), "bad-value", "`path` must be the absolute path of a file")
            .hint(format!("such as: path: {}", Path::new("/var/lib/leads/leads.ndjson").display()));
        return None;
    }
    Some(FileDestination { path })
}
