//! Traces, as a receiver of OpenTelemetry sees them.

use sluice_simulator::faults::Scripted;
use sluice_simulator::otlp::{CollectorMode, ReceivedSpan};
use sluice_simulator::{Collector, Fault, FaultPlan};

use crate::fixture::{Answer, FLOW, QUEUES, World, lead, sign, until};

const WORKER: &str = r#"
name: to-crm
consumes: leads
retry: { strategy: exponential, base_delay: 20ms, max_delay: 20ms, max_attempts: 3, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

/// Trace and span of the sender.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn section(collector: &Collector, protocol: &str, percent: u32) -> String {
    format!(
        "traces:\n  endpoint: {}\n  protocol: {protocol}\n  sample_percent: {percent}\n  timeout: 1s\n  \
         headers: {{ X-Api-Key: '${{secrets.TRACES_KEY}}' }}\n  service_name: leads\n",
        collector.url()
    )
}

async fn world_with(section: &str) -> World {
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("traces.yml", section)];
    World::start_with_secrets(&files, &[("TRACES_KEY", "key-of-traces")]).await
}

/// Posts a lead as part of the sender's trace.
async fn post_traced(world: &World, id: &str) -> Answer {
    let body = lead(id).to_string().into_bytes();
    let request = world
        .client
        .post(format!("{}/in/website", world.intake))
        .header("content-type", "application/json")
        .header("traceparent", format!("00-{TRACE}-{SPAN}-01"))
        .header("x-signature", sign(&body))
        .body(body);
    Answer::of(request.send().await.unwrap()).await
}

/// The spans of a kind, once there are so many.
async fn spans(collector: &Collector, kind: &str, count: usize) -> Vec<ReceivedSpan> {
    until(|| async {
        let found: Vec<ReceivedSpan> = collector.spans().into_iter().filter(|span| span.kind == kind).collect();
        (found.len() >= count).then_some(found)
    })
    .await
}

/// Samples of `sluice_trace_spans_total` with this result.
async fn counted(world: &World, result: &str) -> u64 {
    let page = world.page("/metrics").await;
    let name = format!("sluice_trace_spans_total{{result=\"{result}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_webhook_to_the_call_of_the_crm() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Collector::start().await.unwrap();
        let world = world_with(&section(&collector, protocol, 100)).await;
        let event = post_traced(&world, "a").await.event();
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
        let [server] = &spans(&collector, "SERVER", 1).await[..] else { panic!("one request") };
        let [producer] = &spans(&collector, "PRODUCER", 1).await[..] else { panic!("one event") };
        let [consumer] = &spans(&collector, "CONSUMER", 1).await[..] else { panic!("one run") };
        let [client] = &spans(&collector, "CLIENT", 1).await[..] else { panic!("one call") };
        let path = [server, producer, consumer, client];
        assert!(path.iter().all(|span| span.trace_id == TRACE), "{path:?}");
        let mut parent = SPAN;
        for span in path {
            assert_eq!(span.parent_span_id, parent, "{} of {protocol}", span.name);
            assert!(span.links.is_empty() && span.error.is_none() && span.end_nanos >= span.start_nanos, "{span:?}");
            assert_eq!(span.resource["service.name"], "leads");
            parent = &span.span_id;
        }
        let names = path.map(|span| span.name.as_str());
        assert_eq!(names, ["POST /in/website", "send leads", "process leads", "salesforce.upsert crm"]);
        assert_eq!(server.attributes["http.response.status_code"], "202");
        for span in [producer, consumer] {
            assert_eq!(span.attributes["messaging.system"], "sluice");
            assert_eq!(span.attributes["messaging.destination.name"], "leads");
            assert_eq!(span.attributes["messaging.message.id"], event);
        }
        assert_eq!(consumer.attributes["messaging.operation.type"], "process");
        assert_eq!(consumer.attributes["sluice.key.hash"], producer.attributes["sluice.key.hash"]);
        assert_eq!(client.attributes["sluice.object"], "Lead");
        assert!(client.attributes["sluice.record.id"].starts_with("00Q"), "{client:?}");
        // The CRM saw the span that called it.
        let traceparent = format!("00-{TRACE}-{}-01", client.span_id);
        assert!(world.crm.calls().iter().any(|call| call.traceparent.as_deref() == Some(&traceparent)));
        assert_eq!(
            (collector.is_grpc(), collector.headers()["x-api-key"].as_str()),
            (protocol == "grpc", "key-of-traces")
        );
        until(|| async { (counted(&world, "exported").await == 4).then_some(()) }).await;
        let shown = world.get(&format!("/api/v1/events/{event}")).await;
        assert_eq!(shown["trace"], TRACE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_attempts_and_replays_begin_a_trace_that_links_to_the_event() {
    let collector = Collector::start().await.unwrap();
    // Of the traces that succeed none is kept.
    let world = world_with(&section(&collector, "grpc", 0)).await;
    let fail = Scripted::for_key("website:a", Fault::ErrorBefore).times(3);
    world.crm.set_faults(FaultPlan::scripted([fail])).unwrap();
    let event = post_traced(&world, "a").await.event();
    let job = world.settled(&event).await[0].clone();
    assert_eq!(job["state"], "dead");
    let runs = spans(&collector, "CONSUMER", 3).await;
    let producer = spans(&collector, "PRODUCER", 1).await.remove(0);
    let event_span = (TRACE.to_owned(), producer.span_id.clone());
    assert_eq!(runs[0].trace_id, TRACE);
    for run in &runs[1..] {
        assert_ne!(run.trace_id, TRACE);
        assert_eq!((run.parent_span_id.as_str(), &run.links), ("", &vec![event_span.clone()]), "{run:?}");
    }
    assert_ne!(runs[1].trace_id, runs[2].trace_id);
    let calls = spans(&collector, "CLIENT", 3).await;
    for (run, call) in runs.iter().zip(&calls) {
        assert_eq!((&call.trace_id, &call.parent_span_id), (&run.trace_id, &run.span_id));
        assert!(call.error.is_some(), "{call:?}");
    }
    // A replay that succeeds is not kept: only the next one, which fails, is.
    let replay = serde_json::json!({ "filter": { "states": ["dead"] }, "reason": "fixed" });
    world.crm.set_faults(FaultPlan::scripted([Scripted::for_key("website:a", Fault::ErrorBefore).times(1)])).unwrap();
    assert_eq!(world.act("/api/v1/replays", replay).await.status, 200);
    until(|| async { (world.job_state(&event).await == "succeeded").then_some(()) }).await;
    let replayed = spans(&collector, "CONSUMER", 4).await;
    let replayed = replayed.iter().find(|run| run.attributes["sluice.replay"] == "true").unwrap();
    assert_eq!((replayed.parent_span_id.as_str(), &replayed.links), ("", &vec![event_span]));
    assert_ne!(replayed.trace_id, TRACE);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_traces_are_kept_beside_the_share() {
    let collector = Collector::start().await.unwrap();
    let world = world_with(&section(&collector, "http/protobuf", 0)).await;
    let good = world.post(&lead("good")).await.event();
    assert_eq!(world.settled(&good).await[0]["state"], "succeeded");
    let mut bad = lead("bad");
    bad["last_name"] = "x".repeat(200).into();
    let bad = world.post(&bad).await.event();
    assert_eq!(world.settled(&bad).await[0]["state"], "dead");
    spans(&collector, "CONSUMER", 1).await;
    let all = collector.spans();
    assert_eq!(all.len(), 4, "the whole trace: {all:?}");
    assert!(all.iter().all(|span| span.trace_id == all[0].trace_id));
    assert!(all.iter().any(|span| span.attributes.get("messaging.message.id") == Some(&bad)));
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_continues_after_a_restart() {
    let collector = Collector::start().await.unwrap();
    collector.set_mode(CollectorMode::Refuse);
    let mut world = world_with(&section(&collector, "grpc", 100)).await;
    let pause = serde_json::json!({ "target": "destination:crm", "reason": "test" });
    assert_eq!(world.act("/api/v1/pause", pause.clone()).await.status, 200);
    let event = post_traced(&world, "a").await.event();
    world.stop_node().await;
    collector.set_mode(CollectorMode::Accept);
    assert!(collector.spans().is_empty(), "what was recorded is lost");
    world.start_node().await;
    assert_eq!(world.act("/api/v1/resume", pause).await.status, 200);
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let [consumer] = &spans(&collector, "CONSUMER", 1).await[..] else { panic!("one run") };
    let [producer] = &spans(&collector, "PRODUCER", 1).await[..] else { panic!("the event is known from the ledger") };
    assert_eq!((consumer.trace_id.as_str(), &consumer.parent_span_id), (TRACE, &producer.span_id));
    assert_eq!((producer.trace_id.as_str(), producer.parent_span_id.as_str()), (TRACE, SPAN));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_or_slow_collector_loses_no_lead() {
    let collector = Collector::start().await.unwrap();
    for mode in [CollectorMode::Hang, CollectorMode::Refuse] {
        collector.set_mode(mode);
        let mut world = world_with(&section(&collector, "grpc", 100)).await;
        let mut events = Vec::new();
        for n in 0..100 {
            events.push(world.post(&lead(&format!("lead-{n}"))).await.event());
        }
        for event in &events {
            assert_eq!(world.settled(event).await[0]["state"], "succeeded");
        }
        assert_eq!(world.crm.truth().object("Lead").records, 100);
        until(|| async { (counted(&world, "dropped_failed").await > 0).then_some(()) }).await;
        assert_eq!(counted(&world, "exported").await, 0);
        world.stop_node().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_off_until_they_are_configured() {
    let collector = Collector::start().await.unwrap();
    let world = world_with("# nothing\nqueues: [unused]\n").await;
    let first = world.post(&lead("first")).await.event();
    world.settled(&first).await;
    assert!(!world.page("/metrics").await.contains("sluice_trace_spans_total{"));
    std::fs::write(world.config_path("traces.yml"), section(&collector, "http/protobuf", 100)).unwrap();
    assert_eq!(world.act("/api/v1/reload", serde_json::json!({})).await.status, 200);
    let second = world.post(&lead("second")).await.event();
    world.settled(&second).await;
    spans(&collector, "CONSUMER", 1).await;
    assert!(collector.spans().iter().all(|span| span.attributes.get("messaging.message.id") != Some(&first)));
}
