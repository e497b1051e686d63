//! HMAC verification. Most senders are a row of data ([`hmac_presets`](super::hmac_presets)); the configuration can describe
//! any other.

use std::borrow::Cow;
use std::time::Duration;

use aws_lc_rs::hmac;
use jiff::Timestamp;
use serde_json::Value;

use super::Verified;
use super::digest::{Algorithm, Candidates, Encoding};
use super::error::{MalformedSignature, VerifyError};
use super::freshness::TimestampUnit;
use super::hmac_settings::{
    Assign, HmacSettings, Layout, Separator, SignatureHeader, TimestampSettings, TimestampSource,
};
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret};
use super::template::{self, Part};
use super::url::PublicUrl;
use super::verifier::signed_header;
use crate::path::Path;

/// A validated HMAC scheme with its keys.
#[derive(Clone, Debug)]
pub(super) struct HmacCheck {
    pub(super) header: SignatureHeader<Box<str>>,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    pub(super) prefix: Box<str>,
    pub(super) layout: Layout<Box<str>>,
    parts: Box<[Part]>,
    pub(super) timestamp: Option<TimestampReader>,
    pub(super) id_header: Option<Box<str>>,
    tolerance: Option<Duration>,
    url: Option<PublicUrl>,
    pub(super) keys: Keyring<hmac::Key>,
}

#[derive(Clone, Debug)]
pub(super) struct TimestampReader {
    pub(super) location: TimestampLocation,
    pub(super) unit: TimestampUnit,
}

#[derive(Clone, Debug)]
pub(super) enum TimestampLocation {
    Header(Box<str>),
    Field(Box<str>),
    Body(Box<str>, Path),
}

/// Values for the placeholders of a signed string.
pub(super) struct SignedValues<'a> {
    pub(super) body: &'a [u8],
    pub(super) timestamp: &'a [u8],
    pub(super) id: &'a [u8],
    pub(super) url: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    pub(super) method: &'a str,
}

impl HmacCheck {
    pub(super) fn new<S: AsRef<str>>(
        settings: &HmacSettings<S>,
        secrets: &[Secret],
        tolerance: Option<Duration>,
        url: Option<PublicUrl>,
    ) -> Result<HmacCheck, SettingsProblem> {
        let parts = template::parse(settings.signed.as_ref()).map_err(SettingsProblem::Template)?;
        let timestamp = settings.timestamp.as_ref().map(timestamp_reader).transpose()?;
        if parts.contains(&Part::Timestamp) != timestamp.is_some() {
            return Err(match timestamp {
                Some(_) => SettingsProblem::TimestampNotSigned,
                None => SettingsProblem::TimestampSourceMissing,
            });
        }
        if tolerance.is_some() && timestamp.is_none() {
            return Err(SettingsProblem::ToleranceWithoutTimestamp);
        }
        if parts.contains(&Part::Id) && settings.id_header.is_none() {
            return Err(SettingsProblem::IdHeaderMissing);
        }
        if parts.contains(&Part::Url) && url.is_none() {
            return Err(SettingsProblem::PublicUrlMissing);
        }
        let layout = layout(&settings.layout)?;
        let in_field = matches!(&timestamp, Some(source) if matches!(source.location, TimestampLocation::Field(_)));
        if in_field && matches!(layout, Layout::Whole) {
            return Err(SettingsProblem::FieldWithoutList);
        }
        let keys = Keyring::build(secrets, |secret| {
            let prefix = settings.secret_prefix.as_ref().map_or("", AsRef::as_ref);
            let bytes = settings.secret_encoding.decode(secret, prefix)?;
            Ok::<_, SettingsProblem>(settings.algorithm.key(&bytes))
        })?;
        Ok(HmacCheck {
            header: match &settings.header {
                SignatureHeader::One(name) => SignatureHeader::One(header_name(name)?),
                SignatureHeader::FirstOf(first, second) => {
                    SignatureHeader::FirstOf(header_name(first)?, header_name(second)?)
                }
                SignatureHeader::EitherOf(first, second) => {
                    SignatureHeader::EitherOf(header_name(first)?, header_name(second)?)
                }
            },
            algorithm: settings.algorithm,
            encoding: settings.encoding,
            prefix: settings.prefix.as_ref().map_or("", AsRef::as_ref).into(),
            layout,
            parts,
            timestamp,
            id_header: settings.id_header.as_ref().map(header_name).transpose()?,
            tolerance,
            url,
            keys,
        })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let found = self.signature_headers(request)?;
        let candidates = self.candidates(&found)?;
        let signed_at = match &self.timestamp {
            Some(source) => Some(self.timestamp_of(source, request, found.first.1, now)?),
            None => None,
        };
        let id = self.id_of(request)?;
        let url = self.url.as_ref().map_or(Cow::Borrowed(""), |url| url.of_request(request));
        let values = SignedValues {
            body: request.body,
            timestamp: signed_at.as_ref().map_or(b"", |(text, _)| text),
            id,
            url: &url,
            path: request.path_and_query,
            method: request.method,
        };
        let secret = self
            .keys
            .accept(now, VerifyError::SignatureMismatch, |key| candidates.contain(self.tag(key, &values).as_ref()))?;
        let id_header = self.id_header.as_deref().filter(|_| self.signs_id());
        Ok(Verified {
            signed_headers: id_header.and_then(|name| signed_header(name, id)).into_iter().collect(),
            ..Verified::signed_by(secret, signed_at.map(|(_, at)| at))
        })
    }

    pub(super) fn signs_id(&self) -> bool {
        self.parts.contains(&Part::Id)
    }

    /// The id in its header. An id that contains the text after it in the signed string is rejected: bytes of the body could be
    /// moved into it without a change of the signature.
    fn id_of<'a>(&self, request: &Request<'a>) -> Result<&'a [u8], VerifyError> {
        let Some(name) = &self.id_header else { return Ok(b"") };
        let id = request.header(name).ok_or_else(|| VerifyError::IdMissing { location: header_location(name) })?;
        let separator = self.parts.windows(2).find_map(|pair| match pair {
            [Part::Id, Part::Literal(literal)] => Some(literal),
            _ => None,
        });
        match separator {
            Some(literal) if id.windows(literal.len()).any(|window| window == literal.as_ref()) => {
                Err(VerifyError::IdMalformed { location: header_location(name) })
            }
            _ => Ok(id),
        }
    }

    /// HMAC of the signed string.
    pub(super) fn tag(&self, key: &hmac::Key, values: &SignedValues<'_>) -> hmac::Tag {
        if let [Part::Body] = *self.parts {
            return hmac::sign(key, values.body);
        }
        let mut context = hmac::Context::with_key(key);
        for part in &self.parts {
            context.update(match part {
                Part::Literal(literal) => literal,
                Part::Body => values.body,
                Part::Timestamp => values.timestamp,
                Part::Id => values.id,
                Part::Url => values.url.as_bytes(),
                Part::Path => values.path.as_bytes(),
                Part::Method => values.method.as_bytes(),
            });
        }
        context.sign()
    }

    /// The URL as configured, for signing.
    pub(super) fn public_url(&self) -> &str {
        self.url.as_ref().map_or("", PublicUrl::text)
    }

    fn signature_headers<'a>(&'a self, request: &Request<'a>) -> Result<SignatureValues<'a>, VerifyError> {
        let get = |name: &'a str| request.header(name).map(|value| (name, value));
        let (first, second, name) = match &self.header {
            SignatureHeader::One(name) => (get(name), None, name),
            SignatureHeader::FirstOf(first, second) => (get(first).or_else(|| get(second)), None, second),
            SignatureHeader::EitherOf(first, second) => match get(first) {
                Some(found) => (Some(found), get(second), first),
                None => (get(second), None, first),
            },
        };
        match first {
            Some(first) => Ok(SignatureValues { first, second }),
            None => Err(VerifyError::SignatureMissing { location: header_location(name) }),
        }
    }

    fn candidates(&self, found: &SignatureValues<'_>) -> Result<Candidates, VerifyError> {
        let mut seen = 0;
        let signatures = std::iter::once(found.first)
            .chain(found.second)
            .flat_map(|(_, value)| self.signatures(value))
            .inspect(|_| seen += 1)
            .filter_map(|text| text.strip_prefix(self.prefix.as_bytes()));
        let decoded = Candidates::decode(self.encoding, self.algorithm.digest_bytes(), signatures);
        decoded.map_err(|problem| {
            let problem = match problem {
                MalformedSignature::NoKnownVersion if seen > 0 => MalformedSignature::Prefix,
                other => other,
            };
            VerifyError::malformed(header_location(found.first.0), problem)
        })
    }

    /// Signatures in a header value, including their prefix.
    fn signatures<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (whole, listed) = match &self.layout {
            Layout::Whole => (Some(value), None),
            Layout::List { separator, assign, signature_key } => {
                (None, Some(fields(value, *separator, *assign, signature_key)))
            }
        };
        whole.into_iter().chain(listed.into_iter().flatten())
    }

    /// Text and value of the timestamp, checked against the tolerance.
    fn timestamp_of<'a>(
        &self,
        source: &TimestampReader,
        request: &Request<'a>,
        signature_header: &'a [u8],
        now: Timestamp,
    ) -> Result<(Cow<'a, [u8]>, Timestamp), VerifyError> {
        let text = match &source.location {
            TimestampLocation::Header(name) => request.header(name).map(Cow::Borrowed),
            TimestampLocation::Field(key) => match &self.layout {
                Layout::List { separator, assign, .. } => {
                    fields(signature_header, *separator, *assign, key).next().map(Cow::Borrowed)
                }
                Layout::Whole => None,
            },
            TimestampLocation::Body(..) => source.location.in_body(request.body).map(Cow::Owned),
        };
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| VerifyError::TimestampMissing { location: source.location.name() })?;
        let malformed = || VerifyError::TimestampMalformed { location: source.location.name() };
        let at = source.unit.parse(&text).ok_or_else(malformed)?;
        source.unit.check(at, now, self.tolerance)?;
        Ok((text, at))
    }
}

/// Signature headers of a request, with their names.
struct SignatureValues<'a> {
    first: (&'a str, &'a [u8]),
    second: Option<(&'a str, &'a [u8])>,
}

impl TimestampLocation {
    fn name(&self) -> String {
        match self {
            TimestampLocation::Header(name) => header_location(name),
            TimestampLocation::Field(key) => format!("the field {key} of the signature header"),
            TimestampLocation::Body(path, _) => format!("the body at {path}"),
        }
    }

    /// The text or number at the path, for a location in the body.
    pub(super) fn in_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        let TimestampLocation::Body(_, path) = self else { return None };
        let body: Value = serde_json::from_slice(body).ok()?;
        match path.find(&body)? {
            Value::String(text) => Some(text.clone().into_bytes()),
            Value::Number(number) => Some(number.to_string().into_bytes()),
            _ => None,
        }
    }
}

/// Name of a header in messages.
pub(super) fn header_location(name: &str) -> String {
    format!("the header {name}")
}

/// Values of the fields with this key.
pub(super) fn fields<'a, 'k>(
    value: &'a [u8],
    separator: Separator,
    assign: Assign,
    key: &'k str,
) -> impl Iterator<Item = &'a [u8]> + use<'a, 'k> {
    value.split(move |byte| *byte == separator.byte()).filter_map(move |field| {
        let field = field.trim_ascii();
        let at = field.iter().position(|byte| *byte == assign.byte())?;
        (field[..at].trim_ascii() == key.as_bytes()).then(|| field[at + 1..].trim_ascii())
    })
}

fn layout<S: AsRef<str>>(layout: &Layout<S>) -> Result<Layout<Box<str>>, SettingsProblem> {
    match layout {
        Layout::Whole => Ok(Layout::Whole),
        Layout::List { separator, assign, signature_key } => {
            if separator.byte() == assign.byte() {
                return Err(SettingsProblem::SeparatorClash);
            }
            let signature_key = signature_key.as_ref().into();
            Ok(Layout::List { separator: *separator, assign: *assign, signature_key })
        }
    }
}

fn timestamp_reader<S: AsRef<str>>(settings: &TimestampSettings<S>) -> Result<TimestampReader, SettingsProblem> {
    let location = match &settings.source {
        TimestampSource::Header(name) => TimestampLocation::Header(header_name(name)?),
        TimestampSource::Field(key) => TimestampLocation::Field(key.as_ref().into()),
        TimestampSource::Body(path) => {
            let text = path.as_ref();
            let path = Path::parse(text).ok_or_else(|| SettingsProblem::Path(text.to_owned()))?;
            TimestampLocation::Body(text.into(), path)
        }
    };
    Ok(TimestampReader { location, unit: settings.unit })
}

/// Symbols allowed in a header name besides letters and digits.
pub const HEADER_NAME_SYMBOLS: &str = "!#$%&'*+-.^_`|~";

/// True if the text is a valid header name.
pub fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || HEADER_NAME_SYMBOLS.contains(c))
}

/// Validates a header name and converts it to lower case.
pub(super) fn header_name<S: AsRef<str>>(name: S) -> Result<Box<str>, SettingsProblem> {
    let name = name.as_ref();
    if !is_header_name(name) {
        return Err(SettingsProblem::HeaderName(name.to_owned()));
    }
    Ok(name.to_ascii_lowercase().into())
}
