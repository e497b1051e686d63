//! Where traces are sent, and which.

use std::time::Duration;

use crate::verify::SecretValue;

/// Protocol of OTLP, by the names of the OpenTelemetry specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    HttpProtobuf,
}

impl Protocol {
    pub const NAMES: [&str; 2] = ["grpc", "http/protobuf"];

    pub fn from_name(name: &str) -> Option<Protocol> {
        match name {
            "grpc" => Some(Protocol::Grpc),
            "http/protobuf" => Some(Protocol::HttpProtobuf),
            _ => None,
        }
    }
}

/// Which finished traces are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Share of the traces that are neither failed nor slow, from 0 to 1.
    pub share: f64,
    /// A trace with a span of at least this duration is kept.
    pub slow: Duration,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { share: 0.05, slow: Duration::from_secs(10) }
    }
}

#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// URL of the receiver; for HTTP with the path of traces.
    pub endpoint: String,
    pub protocol: Protocol,
    /// Sent with every export, such as an API key.
    pub headers: Vec<(String, SecretValue)>,
    /// Time limit of one export.
    pub timeout: Duration,
    pub sampling: Sampling,
    pub service_name: String,
    /// More attributes of the service, such as its environment.
    pub resource: Vec<(String, String)>,
}

impl TraceSettings {
    pub const SERVICE_NAME: &'static str = "sluice";
    pub const TIMEOUT: Duration = Duration::from_secs(10);
    /// Path of traces below a base URL of OTLP over HTTP.
    pub const HTTP_PATH: &'static str = "/v1/traces";

    pub fn new(endpoint: &str, protocol: Protocol) -> TraceSettings {
        TraceSettings {
            endpoint: endpoint.to_owned(),
            protocol,
            headers: vec![],
            timeout: TraceSettings::TIMEOUT,
            sampling: Sampling::default(),
            service_name: TraceSettings::SERVICE_NAME.to_owned(),
            resource: vec![],
        }
    }

    /// Whether spans would be sent to the same place in the same way.
    pub fn is_same(&self, other: &TraceSettings) -> bool {
        let headers = |settings: &TraceSettings| -> Vec<(String, String)> {
            settings.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
        };
        let rest = |settings: &TraceSettings| {
            (settings.protocol, settings.timeout, settings.sampling, settings.service_name.clone())
        };
        self.endpoint == other.endpoint
            && rest(self) == rest(other)
            && self.resource == other.resource
            && headers(self) == headers(other)
    }

    /// The URL of traces below a base URL.
    pub fn below(base: &str, protocol: Protocol) -> String {
        let base = base.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        match protocol {
            Protocol::HttpProtobuf if !base.ends_with(TraceSettings::HTTP_PATH) => {
                format!("{base}{}", TraceSettings::HTTP_PATH)
            }
            _ => base,
        }
    }
}
