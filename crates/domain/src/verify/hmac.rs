//! The one HMAC engine. Most senders are a row of data over it ([`senders`](super::senders)); a
//! configuration can describe any other.

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
use crate::path::Path;

/// An HMAC scheme, ready to use.
#[derive(Clone, Debug)]
pub(super) struct HmacCheck {
    pub(super) header: SignatureHeader<Box<str>>,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    pub(super) prefix: Box<str>,
    pub(super) layout: Layout<Box<str>>,
    parts: Box<[Part]>,
    pub(super) timestamp: Option<StampSource>,
    pub(super) id_header: Option<Box<str>>,
    tolerance: Option<Duration>,
    url: Option<PublicUrl>,
    pub(super) keys: Keyring<hmac::Key>,
}

#[derive(Clone, Debug)]
pub(super) struct StampSource {
    pub(super) place: StampPlace,
    pub(super) unit: TimestampUnit,
}

#[derive(Clone, Debug)]
pub(super) enum StampPlace {
    Header(Box<str>),
    Field(Box<str>),
    Body(Box<str>, Path),
}

/// What a signed string is filled with.
pub(super) struct Filling<'a> {
    pub(super) body: &'a [u8],
    pub(super) timestamp: &'a [u8],
    pub(super) id: &'a [u8],
    pub(super) url: &'a str,
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
        let timestamp = settings.timestamp.as_ref().map(stamp_source).transpose()?;
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
        let in_field = matches!(&timestamp, Some(source) if matches!(source.place, StampPlace::Field(_)));
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
        let stamp = match &self.timestamp {
            Some(source) => Some(self.stamp(source, request, found.first.1, now)?),
            None => None,
        };
        let id = match &self.id_header {
            Some(name) => request.header(name).ok_or_else(|| VerifyError::IdMissing { place: header_place(name) })?,
            None => b"",
        };
        let url = self.url.as_ref().map_or(Cow::Borrowed(""), |url| url.of_request(request));
        let filling = Filling {
            body: request.body,
            timestamp: stamp.as_ref().map_or(b"", |(text, _)| text),
            id,
            url: &url,
            method: request.method,
        };
        let secret = self
            .keys
            .admit(now, VerifyError::SignatureMismatch, |key| candidates.contain(self.tag(key, &filling).as_ref()))?;
        Ok(Verified::by(secret, stamp.map(|(_, at)| at)))
    }

    /// The HMAC of the filled template.
    pub(super) fn tag(&self, key: &hmac::Key, filling: &Filling<'_>) -> hmac::Tag {
        if let [Part::Body] = *self.parts {
            return hmac::sign(key, filling.body);
        }
        let mut context = hmac::Context::with_key(key);
        for part in &self.parts {
            context.update(match part {
                Part::Literal(literal) => literal,
                Part::Body => filling.body,
                Part::Timestamp => filling.timestamp,
                Part::Id => filling.id,
                Part::Url => filling.url.as_bytes(),
                Part::Method => filling.method.as_bytes(),
            });
        }
        context.sign()
    }

    /// The URL as configured, for signing.
    pub(super) fn public_url(&self) -> &str {
        self.url.as_ref().map_or("", PublicUrl::text)
    }

    fn signature_headers<'a>(&'a self, request: &Request<'a>) -> Result<Found<'a>, VerifyError> {
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
            Some(first) => Ok(Found { first, second }),
            None => Err(VerifyError::SignatureMissing { place: header_place(name) }),
        }
    }

    fn candidates(&self, found: &Found<'_>) -> Result<Candidates, VerifyError> {
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
            VerifyError::malformed(header_place(found.first.0), problem)
        })
    }

    /// The signature texts in a header's value, prefix included.
    fn signatures<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (whole, listed) = match &self.layout {
            Layout::Whole => (Some(value), None),
            Layout::List { separator, assign, signature_key } => {
                (None, Some(fields(value, *separator, *assign, signature_key)))
            }
        };
        whole.into_iter().chain(listed.into_iter().flatten())
    }

    /// The text of the timestamp, and the moment it stands for, within the tolerance.
    fn stamp<'a>(
        &self,
        source: &StampSource,
        request: &Request<'a>,
        signature_header: &'a [u8],
        now: Timestamp,
    ) -> Result<(Cow<'a, [u8]>, Timestamp), VerifyError> {
        let text = match &source.place {
            StampPlace::Header(name) => request.header(name).map(Cow::Borrowed),
            StampPlace::Field(key) => match &self.layout {
                Layout::List { separator, assign, .. } => {
                    fields(signature_header, *separator, *assign, key).next().map(Cow::Borrowed)
                }
                Layout::Whole => None,
            },
            StampPlace::Body(..) => source.place.in_body(request.body).map(Cow::Owned),
        };
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| VerifyError::TimestampMissing { place: source.place.name() })?;
        let malformed = || VerifyError::TimestampMalformed { place: source.place.name() };
        let at = source.unit.parse(&text).ok_or_else(malformed)?;
        source.unit.check(at, now, self.tolerance)?;
        Ok((text, at))
    }
}

/// The signature headers that are there, with their names.
struct Found<'a> {
    first: (&'a str, &'a [u8]),
    second: Option<(&'a str, &'a [u8])>,
}

impl StampPlace {
    fn name(&self) -> String {
        match self {
            StampPlace::Header(name) => header_place(name),
            StampPlace::Field(key) => format!("the field {key} of the signature header"),
            StampPlace::Body(path, _) => format!("the body at {path}"),
        }
    }

    /// The text or number at the path, if it is one into a body.
    pub(super) fn in_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        let StampPlace::Body(_, path) = self else { return None };
        let body: Value = serde_json::from_slice(body).ok()?;
        match path.find(&body)? {
            Value::String(text) => Some(text.clone().into_bytes()),
            Value::Number(number) => Some(number.to_string().into_bytes()),
            _ => None,
        }
    }
}

/// How a header is called in a message.
pub(super) fn header_place(name: &str) -> String {
    format!("the header {name}")
}

/// The values of the fields with this key.
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

fn stamp_source<S: AsRef<str>>(settings: &TimestampSettings<S>) -> Result<StampSource, SettingsProblem> {
    let place = match &settings.source {
        TimestampSource::Header(name) => StampPlace::Header(header_name(name)?),
        TimestampSource::Field(key) => StampPlace::Field(key.as_ref().into()),
        TimestampSource::Body(path) => {
            let text = path.as_ref();
            let path = Path::parse(text).ok_or_else(|| SettingsProblem::Path(text.to_owned()))?;
            StampPlace::Body(text.into(), path)
        }
    };
    Ok(StampSource { place, unit: settings.unit })
}

/// What may stand in the name of a header beside letters and digits.
pub const HEADER_MARKS: &str = "!#$%&'*+-.^_`|~";

/// Whether this can be the name of a header.
pub fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || HEADER_MARKS.contains(c))
}

/// A header's name in lower case, if it can be one.
pub(super) fn header_name<S: AsRef<str>>(name: S) -> Result<Box<str>, SettingsProblem> {
    let name = name.as_ref();
    if !is_header_name(name) {
        return Err(SettingsProblem::HeaderName(name.to_owned()));
    }
    Ok(name.to_ascii_lowercase().into())
}
