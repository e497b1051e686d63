//! `traces:`, where traces are sent; and the standard environment variables of OpenTelemetry.

use std::time::Duration;

use sluice_domain::trace::{Protocol, Sampling, TraceSettings};
use sluice_domain::verify::SecretValue;

use super::declarations::{Declarations, Placed, SourceLocation};
use super::destination::{read_headers, read_url};
use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::table::{LASTING, SectionSpec, ValueType, key};

const TIMEOUT_MAX: Duration = Duration::from_secs(60);

pub(super) static TRACES: SectionSpec = SectionSpec {
    title: "traces",
    about: "Sends traces to a receiver of OpenTelemetry (OTLP). Without this section, and without the variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, no span is recorded.",
    keys: &[
        key("endpoint", ValueType::Url, "URL of the receiver; /v1/traces is added for http/protobuf.").required(),
        key("protocol", ValueType::OneOf(&Protocol::NAMES), "Protocol of OTLP.").or("http/protobuf"),
        key(
            "headers",
            ValueType::Described("a map of header names to text"),
            "Headers of every export, such as an API key; ${secrets.NAME} is replaced.",
        ),
        key("service_name", ValueType::Text, "Attribute `service.name`.").or("OTEL_SERVICE_NAME, or sluice"),
        key("sample_percent", ValueType::Number(0, 100), "Share of the traces that are neither failed nor slow.")
            .or("5"),
        key("slow", LASTING, "A trace is kept if a span, or the time since the request, is at least this long.")
            .or("10s"),
        key("timeout", ValueType::Between(Duration::from_millis(100), TIMEOUT_MAX), "Time limit of one export.")
            .or("10s"),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    if let Some(first) = &names.traces {
        report
            .error(node.span, "duplicate-name", format!("traces are already defined in {}", first.place.describe()))
            .hint("keep one `traces:` section");
        return;
    }
    let Some(fields) = Fields::open(report, node, &[&TRACES]) else { return };
    let protocol = fields.one_of("protocol").and_then(Protocol::from_name).unwrap_or(Protocol::HttpProtobuf);
    let headers = fields.node("headers").map(|node| read_headers(report, node)).unwrap_or_default();
    let standard = Sampling::default();
    let sampling = Sampling {
        share: fields.number("sample_percent").map_or(standard.share, |percent| percent / 100.0),
        slow: fields.duration("slow").unwrap_or(standard.slow),
    };
    let timeout = fields.duration("timeout").unwrap_or(TraceSettings::TIMEOUT);
    let service_name = fields.text("service_name").map(str::to_owned);
    let Some(endpoint) = read_url(&fields, "endpoint") else { return };
    let endpoint = TraceSettings::below(&endpoint, protocol);
    let settings = TraceSettings {
        headers,
        timeout,
        sampling,
        service_name: service_name.unwrap_or_default(),
        ..TraceSettings::new(&endpoint, protocol)
    };
    names.traces = Some(Placed { place: SourceLocation::new(report, node.span), value: settings });
}

/// What the environment says about traces, by the variables of the OpenTelemetry specification.
#[derive(Clone, Debug, Default)]
pub struct TraceEnvironment {
    /// `OTEL_SDK_DISABLED=true` or `OTEL_TRACES_EXPORTER=none`.
    disabled: bool,
    /// Of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`.
    settings: Option<TraceSettings>,
    /// Of `OTEL_SERVICE_NAME`, or `service.name` of `OTEL_RESOURCE_ATTRIBUTES`.
    service_name: Option<String>,
    /// Of `OTEL_RESOURCE_ATTRIBUTES`.
    resource: Vec<(String, String)>,
}

impl TraceEnvironment {
    /// Reads the environment of the process.
    pub fn of_process() -> TraceEnvironment {
        TraceEnvironment::read(|name| std::env::var(name).ok())
    }

    /// An empty variable counts as absent, as the specification says.
    fn read(variable: impl Fn(&str) -> Option<String>) -> TraceEnvironment {
        let variable = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let of_traces = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let protocol =
            of_traces("PROTOCOL").and_then(|name| Protocol::from_name(&name)).unwrap_or(Protocol::HttpProtobuf);
        let own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let base = || variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| TraceSettings::below(&base, protocol));
        let settings = own.or_else(base).map(|endpoint| TraceSettings {
            headers: pairs(&of_traces("HEADERS").unwrap_or_default())
                .map(|(name, value)| (name, SecretValue::from(value)))
                .collect(),
            timeout: of_traces("TIMEOUT")
                .and_then(|text| text.parse().ok())
                .map_or(TraceSettings::TIMEOUT, Duration::from_millis)
                .min(TIMEOUT_MAX),
            sampling: Sampling {
                share: variable("OTEL_TRACES_SAMPLER_ARG")
                    .and_then(|text| text.parse().ok())
                    .filter(|share| (0.0..=1.0).contains(share))
                    .unwrap_or(Sampling::default().share),
                ..Sampling::default()
            },
            ..TraceSettings::new(&endpoint, protocol)
        });
        let mut resource: Vec<(String, String)> =
            pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()).collect();
        let named = resource.iter().position(|(name, _)| name == "service.name").map(|at| resource.remove(at).1);
        TraceEnvironment {
            disabled: variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
                || variable("OTEL_TRACES_EXPORTER").is_some_and(|name| name == "none"),
            settings,
            service_name: variable("OTEL_SERVICE_NAME").or(named),
            resource,
        }
    }

    /// The settings of a node with this `traces:` section. The section counts before the variables.
    pub(crate) fn with_section(&self, section: Option<&TraceSettings>) -> Option<TraceSettings> {
        let mut settings = section.or(self.settings.as_ref()).filter(|_| !self.disabled)?.clone();
        let named = section.map(|section| section.service_name.clone()).filter(|name| !name.is_empty());
        settings.service_name =
            named.or_else(|| self.service_name.clone()).unwrap_or_else(|| TraceSettings::SERVICE_NAME.to_owned());
        settings.resource.clone_from(&self.resource);
        Some(settings)
    }
}

/// `name=value,name=value` with percent-encoded values, as W3C baggage.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty()).then(|| (name.to_owned(), percent_decoded(value)))
    })
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let encoded = (*first == b'%').then(|| tail.get(..2)).flatten();
        let decoded = encoded.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> TraceEnvironment {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string());
        TraceEnvironment::read(find)
    }

    #[test]
    fn standard_variables_turn_traces_on() {
        assert!(environment(&[]).with_section(None).is_none());
        let settings = environment(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%3Db, other = c"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=leads,deployment.environment.name=test"),
        ])
        .with_section(None)
        .unwrap();
        assert_eq!(settings.endpoint, "http://collector:4318/v1/traces");
        assert_eq!(settings.headers[0].1.expose(), "a=b");
        assert_eq!(settings.headers[1].0, "other");
        assert_eq!((settings.timeout, settings.sampling.share), (Duration::from_millis(2_500), 0.5));
        assert_eq!(settings.service_name, "leads");
        assert_eq!(settings.resource, [("deployment.environment.name".to_owned(), "test".to_owned())]);
    }

    #[test]
    fn variables_of_traces_count_before_the_general_ones_and_the_section_before_both() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4317"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4317"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_SERVICE_NAME", "leads"),
        ];
        let environment_settings = environment(&variables).with_section(None).unwrap();
        assert_eq!(environment_settings.endpoint, "http://own:4317");
        assert_eq!(environment_settings.protocol, Protocol::Grpc);
        let mut section = TraceSettings::new("http://section:4317", Protocol::Grpc);
        section.service_name.clear();
        let settings = environment(&variables).with_section(Some(&section)).unwrap();
        assert_eq!((settings.endpoint.as_str(), settings.service_name.as_str()), ("http://section:4317", "leads"));
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(environment(&[variables[0], off]).with_section(Some(&section)).is_none());
        }
    }
}
