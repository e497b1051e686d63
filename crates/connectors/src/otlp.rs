//! Exports finished spans to a receiver of OpenTelemetry, by OTLP over gRPC or HTTP. The exporter of the OpenTelemetry project
//! encodes, sends and retries; connections are opened as those of destinations are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol as OtlpProtocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use sluice_domain::trace::{self, Attribute, Protocol, Span, TraceContext, TraceSettings};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use url::Url;

use crate::outbound::{AddressScope, H2Connector, Outbound, OutboundSettings, Request, sensitive};

/// Name of the instrumentation in exported spans.
const SCOPE: &str = "sluice";

/// Exports spans. One export at a time.
#[derive(Debug)]
pub struct OtlpExporter {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    timeout: Duration,
    /// Texts that are left out of errors.
    secrets: Vec<String>,
}

/// Why an exporter cannot be built, or an export failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OtlpError(String);

impl OtlpExporter {
    /// Builds the exporter. It connects with the first export. Must be called in a tokio runtime.
    pub fn new(settings: &TraceSettings) -> Result<OtlpExporter, OtlpError> {
        let mut exporter = match settings.protocol {
            Protocol::Grpc => grpc(settings)?,
            Protocol::HttpProtobuf => http(settings)?,
        };
        exporter.set_resource(&resource(settings));
        let version = env!("CARGO_PKG_VERSION");
        let secrets = settings.headers.iter().map(|(_, value)| value.expose().to_owned());
        Ok(OtlpExporter {
            exporter,
            scope: InstrumentationScope::builder(SCOPE).with_version(version).build(),
            timeout: settings.timeout,
            secrets: secrets.filter(|secret| !secret.is_empty()).chain([settings.endpoint.clone()]).collect(),
        })
    }

    /// Sends spans, and again if the receiver asks for it. Gives up after the time limit.
    pub async fn export(&self, spans: &[Span]) -> Result<(), OtlpError> {
        let batch = spans.iter().map(|span| self.span_data(span)).collect();
        match tokio::time::timeout(self.timeout, self.exporter.export(batch)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(OtlpError(self.without_secrets(error.to_string()))),
            Err(_) => Err(OtlpError(format!("no answer within {} ms", self.timeout.as_millis()))),
        }
    }

    fn without_secrets(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "…"))
    }

    fn span_data(&self, span: &Span) -> SpanData {
        let start = UNIX_EPOCH + span.start;
        let mut links = SpanLinks::default();
        links.links = span.links.iter().map(|link| Link::with_context(span_context(*link, true))).collect();
        SpanData {
            span_context: span_context(span.context, false),
            parent_span_id: span.parent.map_or(SpanId::INVALID, span_id),
            parent_span_is_remote: span.parent_is_remote,
            span_kind: match span.kind {
                trace::SpanKind::Server => SpanKind::Server,
                trace::SpanKind::Producer => SpanKind::Producer,
                trace::SpanKind::Consumer => SpanKind::Consumer,
                trace::SpanKind::Client => SpanKind::Client,
            },
            name: Cow::Owned(span.name.clone()),
            start_time: start,
            end_time: start.checked_add(span.took).unwrap_or(SystemTime::UNIX_EPOCH),
            attributes: span.attributes.iter().map(|(name, value)| KeyValue::new(*name, attribute(value))).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: span.error.as_ref().map_or(Status::Unset, |code| Status::error(code.clone())),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn span_id(id: trace::SpanId) -> SpanId {
    SpanId::from_bytes(id.0.to_be_bytes())
}

fn span_context(context: TraceContext, is_remote: bool) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let trace = TraceId::from_bytes(context.trace.0);
    SpanContext::new(trace, span_id(context.span), flags, is_remote, TraceState::default())
}

fn attribute(value: &Attribute) -> Value {
    match value {
        Attribute::Text(Cow::Borrowed(text)) => Value::String(StringValue::from(*text)),
        Attribute::Text(Cow::Owned(text)) => Value::String(StringValue::from(text.clone())),
        Attribute::Shared(text) => Value::String(StringValue::from(text.clone())),
        Attribute::Number(number) => Value::I64(*number),
        Attribute::Flag(flag) => Value::Bool(*flag),
    }
}

fn resource(settings: &TraceSettings) -> Resource {
    let more = settings.resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    Resource::builder_empty()
        .with_attributes(more)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_service_name(settings.service_name.clone())
        .build()
}

fn headers(settings: &TraceSettings) -> Result<HeaderMap, OtlpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let bad = || OtlpError(format!("`{name}` is not a header"));
        let key = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| bad())?;
        headers.insert(key, sensitive(value.expose()).ok_or_else(bad)?);
    }
    Ok(headers)
}

fn grpc(settings: &TraceSettings) -> Result<SpanExporter, OtlpError> {
    let endpoint = Endpoint::from_shared(settings.endpoint.clone())
        .map_err(|_| OtlpError("the endpoint is not a URL".to_owned()))?
        .timeout(settings.timeout);
    let channel = endpoint.connect_with_connector_lazy(H2Connector::new(settings.timeout).map_err(OtlpError)?);
    SpanExporter::builder()
        .with_tonic()
        .with_channel(channel)
        .with_timeout(settings.timeout)
        .with_metadata(MetadataMap::from_headers(headers(settings)?))
        .build()
        .map_err(|error| OtlpError(error.to_string()))
}

fn http(settings: &TraceSettings) -> Result<SpanExporter, OtlpError> {
    let outbound = Outbound::new(&OutboundSettings::default()).map_err(OtlpError)?;
    // The client itself adds the headers, so that they stay out of the exporter's own records.
    let client = Client { outbound, timeout: settings.timeout, headers: headers(settings)? };
    SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(OtlpProtocol::HttpBinary)
        .with_endpoint(settings.endpoint.clone())
        .with_timeout(settings.timeout)
        .with_headers(HashMap::new())
        .build()
        .map_err(|error| OtlpError(error.to_string()))
}

/// The HTTP client of the exporter.
#[derive(Debug)]
struct Client {
    outbound: Outbound,
    timeout: Duration,
    headers: HeaderMap,
}

type HttpResult = Result<hyper::Response<Bytes>, HttpError>;

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: hyper::Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = HttpResult> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut headers = head.headers;
            headers.extend(self.headers.clone());
            let url = Url::parse(&head.uri.to_string())?;
            let request = Request { method: head.method, url, headers, body, scope: AddressScope::Anywhere };
            let sent = self.outbound.send(request, Instant::now() + self.timeout).await;
            let answer = sent.map_err(|error| std::io::Error::other(error.message))?;
            let mut response = hyper::Response::new(answer.body);
            *response.status_mut() = hyper::StatusCode::from_u16(answer.status)?;
            *response.headers_mut() = answer.headers;
            Ok(response)
        })
    }
}
