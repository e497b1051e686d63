//! Receiver of OpenTelemetry traces: OTLP over gRPC and over HTTP, on one port, decoded with the types of the OpenTelemetry project.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_service::Service;

use crate::lock;

/// Spans that are kept; later ones are only counted.
const SPANS_MAX: usize = 100_000;

/// How the collector answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectorMode {
    #[default]
    Accept,
    /// Answers 503 or UNAVAILABLE.
    Refuse,
    /// Never answers.
    Hang,
}

/// A received span, with ids in hexadecimal digits and every attribute as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedSpan {
    pub trace_id: String,
    pub span_id: String,
    /// Empty for a root.
    pub parent_span_id: String,
    pub name: String,
    /// SERVER, PRODUCER, CONSUMER or CLIENT.
    pub kind: String,
    pub start_nanos: u64,
    pub end_nanos: u64,
    pub attributes: BTreeMap<String, String>,
    /// Trace and span of each link.
    pub links: Vec<(String, String)>,
    /// Description of the status of a failed span.
    pub error: Option<String>,
    pub resource: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<ReceivedSpan>,
    count: u64,
    requests: u64,
    /// Headers of the last request.
    headers: BTreeMap<String, String>,
    is_grpc: bool,
}

#[derive(Debug)]
struct Shared {
    received: Mutex<Received>,
    mode: watch::Sender<CollectorMode>,
}

/// Running collector. Stops when dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Collector {
    /// Listens on a port of loopback. Must be called in a tokio runtime.
    pub async fn start() -> io::Result<Collector> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Shared { received: Mutex::default(), mode: watch::Sender::new(CollectorMode::default()) });
        let (stop, mut stopped) = watch::channel(false);
        let serving = shared.clone();
        tokio::spawn(async move {
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stopped.changed() => return,
                };
                let Ok((stream, _)) = stream else { continue };
                tokio::spawn(serve(stream, serving.clone(), stopped.clone()));
            }
        });
        Ok(Collector { address, shared, stop })
    }

    /// URL for both protocols.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set_mode(&self, mode: CollectorMode) {
        self.shared.mode.send_replace(mode);
    }

    pub fn spans(&self) -> Vec<ReceivedSpan> {
        lock(&self.shared.received).spans.clone()
    }

    /// Spans in all.
    pub fn count(&self) -> u64 {
        lock(&self.shared.received).count
    }

    /// Export requests, answered or not.
    pub fn requests(&self) -> u64 {
        lock(&self.shared.received).requests
    }

    /// Headers of the last request.
    pub fn headers(&self) -> BTreeMap<String, String> {
        lock(&self.shared.received).headers.clone()
    }

    /// Whether the last request was gRPC.
    pub fn is_grpc(&self) -> bool {
        lock(&self.shared.received).is_grpc
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

async fn serve(stream: tokio::net::TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = connection => {}
        _ = stopped.changed() => {}
    }
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<tonic::body::Body> {
    let of = |headers: &HeaderMap| {
        let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    };
    let is_grpc =
        request.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    {
        let mut received = lock(&shared.received);
        received.requests += 1;
        received.headers = of(request.headers());
        received.is_grpc = is_grpc;
    }
    let mode = *shared.mode.borrow();
    if mode == CollectorMode::Hang {
        std::future::pending::<()>().await;
    }
    if is_grpc {
        let mut service = TraceServiceServer::new(Grpc(shared.clone()));
        return match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
    }
    let (status, body) = over_http(shared, mode, request).await;
    let mut response = Response::new(tonic::body::Body::new(Full::new(body)));
    *response.status_mut() = status;
    response
}

async fn over_http(shared: &Shared, mode: CollectorMode, request: Request<Incoming>) -> (StatusCode, Bytes) {
    if mode == CollectorMode::Refuse {
        return (StatusCode::SERVICE_UNAVAILABLE, Bytes::new());
    }
    if request.uri().path() != "/v1/traces" {
        return (StatusCode::NOT_FOUND, Bytes::new());
    }
    let Ok(body) = request.into_body().collect().await else { return (StatusCode::BAD_REQUEST, Bytes::new()) };
    match ExportTraceServiceRequest::decode(body.to_bytes()) {
        Ok(export) => {
            shared.take(export);
            (StatusCode::OK, ExportTraceServiceResponse::default().encode_to_vec().into())
        }
        Err(_) => (StatusCode::BAD_REQUEST, Bytes::new()),
    }
}

#[derive(Debug)]
struct Grpc(Arc<Shared>);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        if *self.0.mode.borrow() == CollectorMode::Refuse {
            return Err(tonic::Status::unavailable("not now"));
        }
        self.0.take(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Shared {
    fn take(&self, export: ExportTraceServiceRequest) {
        let mut received = lock(&self.received);
        for of_resource in export.resource_spans {
            let resource = of_resource.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
            for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
                received.count += 1;
                if received.spans.len() < SPANS_MAX {
                    received.spans.push(of_span(&span, &resource));
                }
            }
        }
    }
}

fn of_span(span: &Span, resource: &BTreeMap<String, String>) -> ReceivedSpan {
    let failed = span.status.as_ref().filter(|status| status.code == status::StatusCode::Error as i32);
    let links = span.links.iter();
    ReceivedSpan {
        trace_id: HEXLOWER.encode(&span.trace_id),
        span_id: HEXLOWER.encode(&span.span_id),
        parent_span_id: HEXLOWER.encode(&span.parent_span_id),
        name: span.name.clone(),
        kind: SpanKind::try_from(span.kind)
            .map_or("", |kind| kind.as_str_name().trim_start_matches("SPAN_KIND_"))
            .to_owned(),
        start_nanos: span.start_time_unix_nano,
        end_nanos: span.end_time_unix_nano,
        attributes: texts(&span.attributes),
        links: links.map(|link| (HEXLOWER.encode(&link.trace_id), HEXLOWER.encode(&link.span_id))).collect(),
        error: failed.map(|status| status.message.clone()),
        resource: resource.clone(),
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::BoolValue(flag) => flag.to_string(),
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let value = |attribute: &KeyValue| attribute.value.as_ref()?.value.as_ref().map(text);
    attributes.iter().map(|attribute| (attribute.key.clone(), value(attribute).unwrap_or_default())).collect()
}
