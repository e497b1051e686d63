//! Builds the signed request. Pure.

use data_encoding::BASE64;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use lettre::message::Mailbox;
use serde_json::{Map, Value, json};
use sluice_domain::destination::{AwsCredentials, SesDestination};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::Failure;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::response;
use crate::Call;
use crate::email::settings::{Settings, address};
use crate::outbound::{AddressScope, Request};
use crate::parameter::{problem, scalar};
use crate::sigv4::{self, Scope};

/// SES account with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    url: Url,
    pub(crate) host: String,
    region: String,
    credentials: AwsCredentials,
    from: Mailbox,
    configuration_set: Option<String>,
    pub(crate) rules: FailureTable,
    pub(crate) secrets: Vec<SecretValue>,
}

impl Target {
    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &SesDestination, own_rules: &[FailureRule]) -> Result<Target, String> {
        let region = &destination.region;
        if region.is_empty() || !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(format!("region: `{region}` is not a region such as eu-central-1"));
        }
        let base = match &destination.base_url {
            Some(own) => own.trim_end_matches('/').to_owned(),
            None => format!("https://email.{region}.amazonaws.com"),
        };
        let url = Url::parse(&format!("{base}/v2/email/outbound-emails"))
            .map_err(|error| format!("base_url: is not a URL: {error}"))?;
        let from = address("from", &destination.from).map_err(|failure| format!("from: {}", failure.message))?;
        let credentials = &destination.credentials;
        let secrets = [Some(&credentials.secret_access_key), credentials.session_token.as_ref()];
        Ok(Target {
            host: url.host_str().unwrap_or_default().to_owned(),
            url,
            region: region.clone(),
            credentials: credentials.clone(),
            from,
            configuration_set: destination.configuration_set.clone(),
            rules: response::SHIPPED_RULES.behind(own_rules),
            secrets: secrets.into_iter().flatten().cloned().collect(),
        })
    }

    pub(super) fn send(&self, mail: &Settings<'_>, call: &Call<'_>) -> Result<Request, Failure> {
        let body = self.body(mail, call.effect_key)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut request = Request {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: body.to_string().into(),
            scope: AddressScope::Anywhere,
        };
        sigv4::sign(&mut request, &self.credentials, Scope { region: &self.region, service: "ses" }, call.now)?;
        Ok(request)
    }

    fn body(&self, mail: &Settings<'_>, effect_key: &str) -> Result<Value, Failure> {
        let list = |mailboxes: &[Mailbox]| Value::Array(mailboxes.iter().map(|one| mailbox(one).into()).collect());
        let mut destination = Map::new();
        for (name, mailboxes) in [("ToAddresses", &mail.to), ("CcAddresses", &mail.cc), ("BccAddresses", &mail.bcc)] {
            if !mailboxes.is_empty() {
                destination.insert(name.to_owned(), list(mailboxes));
            }
        }
        let part = |text: &str| json!({ "Data": text, "Charset": "UTF-8" });
        let mut content = Map::new();
        content.extend(mail.text.as_deref().map(|text| ("Text".to_owned(), part(text))));
        content.extend(mail.html.as_deref().map(|html| ("Html".to_owned(), part(html))));
        let mut simple = json!({ "Subject": part(&mail.subject), "Body": content });
        if let Some(headers) = mail.headers {
            let header = |(name, value): (&String, &Value)| match scalar(value) {
                Some(value) => Ok(json!({ "Name": name, "Value": value })),
                None => Err(problem(&format!("headers.{name}"), "must be text")),
            };
            simple["Headers"] = headers.iter().map(header).collect::<Result<Vec<_>, _>>()?.into();
        }
        let mut body = json!({
            "FromEmailAddress": mailbox(mail.from.as_ref().unwrap_or(&self.from)),
            "Destination": destination,
            "Content": { "Simple": simple },
            "EmailTags": [{ "Name": "effect_key", "Value": effect_key }],
        });
        if !mail.reply_to.is_empty() {
            body["ReplyToAddresses"] = list(&mail.reply_to);
        }
        if let Some(set) = &self.configuration_set {
            body["ConfigurationSetName"] = set.as_str().into();
        }
        Ok(body)
    }
}

/// An address as SES takes it: a name outside of ASCII is an encoded word (RFC 2047).
fn mailbox(mailbox: &Mailbox) -> String {
    match &mailbox.name {
        Some(name) if !name.is_ascii() => {
            // An encoded word has at most 75 characters, and no character is cut.
            let mut words: Vec<String> = vec![String::new()];
            for c in name.chars() {
                if words.last().is_some_and(|word| word.len() + c.len_utf8() > 45) {
                    words.push(String::new());
                }
                words.last_mut().expect("there is one").push(c);
            }
            let words: Vec<String> =
                words.iter().map(|word| format!("=?UTF-8?B?{}?=", BASE64.encode(word.as_bytes()))).collect();
            format!("{} <{}>", words.join(" "), mailbox.email)
        }
        _ => mailbox.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::call;

    fn target() -> Target {
        Target::new(
            &SesDestination {
                region: "eu-central-1".into(),
                base_url: None,
                credentials: AwsCredentials {
                    access_key_id: "AKIDEXAMPLE".into(),
                    secret_access_key: "hunter2-aws".into(),
                    session_token: Some("hunter2-session".into()),
                },
                from: "Zoë <shop@example.com>".into(),
                configuration_set: Some("leads".into()),
            },
            &[],
        )
        .unwrap()
    }

    #[test]
    fn mail_becomes_a_signed_request() {
        let with = json!({
            "to": ["Ada <ada@example.com>"], "cc": ["bob@example.com"], "reply_to": ["help@example.com"],
            "subject": "Hello", "text": "Hi", "headers": {"X-Campaign": "spring"},
        });
        let request = target().send(&Settings::read(&with).unwrap(), &call(&with)).unwrap();
        assert_eq!(request.url.as_str(), "https://email.eu-central-1.amazonaws.com/v2/email/outbound-emails");
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            body,
            json!({
                "FromEmailAddress": "=?UTF-8?B?Wm/Dqw==?= <shop@example.com>",
                "Destination": {"ToAddresses": ["Ada <ada@example.com>"], "CcAddresses": ["bob@example.com"]},
                "ReplyToAddresses": ["help@example.com"],
                "Content": {"Simple": {
                    "Subject": {"Data": "Hello", "Charset": "UTF-8"},
                    "Body": {"Text": {"Data": "Hi", "Charset": "UTF-8"}},
                    "Headers": [{"Name": "X-Campaign", "Value": "spring"}],
                }},
                "EmailTags": [{"Name": "effect_key", "Value": "effect-1"}],
                "ConfigurationSetName": "leads",
            })
        );
        let authorization = request.headers["authorization"].to_str().unwrap();
        assert!(authorization.contains("/eu-central-1/ses/aws4_request"), "{authorization}");
        assert!(
            authorization
                .contains("SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token")
        );
        assert!(!format!("{:?} {:?}", request.headers, target()).contains("hunter2"), "no secret is shown");
    }
}
