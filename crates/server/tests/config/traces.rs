//! `traces:`: what is read, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::trace::Protocol;
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;

pub(crate) const FLOW: &str = "\
name: in
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: lead.created}
steps: [{queue: leads}]
queues: [leads]
---
name: w
consumes: leads
run: [{name: get, run: http.request, with: {url: 'https://api.example/'}}]
";

fn compiled(traces: &str) -> (Compiled, Files) {
    let files = Files::from_texts([("flow.yml", FLOW), ("traces.yml", traces)]);
    (compile(&files, &editor::AnySecret), files)
}

#[test]
fn traces_are_compiled() {
    let traces = "traces: {endpoint: 'https://in.example:4318', headers: {X-Key: '${secrets.KEY}'}, sample_percent: 2.5, slow: 3s}\n";
    let settings = editor::valid(compiled(traces)).traces.unwrap();
    assert_eq!(
        (settings.endpoint.as_str(), settings.protocol),
        ("https://in.example:4318/v1/traces", Protocol::HttpProtobuf)
    );
    assert_eq!((settings.sampling.share, settings.sampling.slow), (0.025, Duration::from_secs(3)));
    assert_eq!((settings.headers[0].0.as_str(), settings.timeout), ("X-Key", Duration::from_secs(10)));
    let grpc =
        editor::valid(compiled("traces: {endpoint: 'http://127.0.0.1:4317/', protocol: grpc}\n")).traces.unwrap();
    assert_eq!((grpc.endpoint.as_str(), grpc.protocol), ("http://127.0.0.1:4317", Protocol::Grpc));
    assert!(editor::valid(compiled("queues: [other]\n")).traces.is_none());
}

#[test]
fn mistakes_are_reported_with_what_to_do() {
    let cases = [
        ("traces: {}\n", "traces needs `endpoint`"),
        ("traces: {endpoint: collector}\n", "`endpoint` is not a URL"),
        ("traces: {endpoint: 'https://a.example', protocol: http}\n", "one of `grpc`, `http/protobuf`"),
        ("traces: {endpoint: 'https://a.example', sample_percent: 101}\n", "a number from 0 to 100"),
        ("traces: {endpoint: 'https://a.example', slow: 0s}\n", "a duration above zero"),
        ("traces: {endpoint: 'https://a.example', headers: {Authorization: 'Bearer abc'}}\n", "${secrets."),
        ("traces: {endpoint: 'https://a.example', sample: 5}\n", "sample_percent"),
        (
            "traces: {endpoint: 'https://a.example'}\n---\ntraces: {endpoint: 'https://b.example'}\n",
            "traces are already defined",
        ),
        ("traces: on\n", "traces must be a map"),
        ("trace: {endpoint: 'https://a.example'}\n", "traces"),
    ];
    for (traces, expected) in cases {
        let (compiled, files) = compiled(traces);
        let problems = render_all(&compiled.problems, &files, Colours::None);
        assert!(problems.contains(expected), "{traces}: {problems}");
    }
}
