//! The load generator against servers whose counts are exact.

use std::sync::Arc;
use std::time::Duration;

use sluice_simulator::faults::Scripted;
use sluice_simulator::load::{Connection, LoadSettings, Pace, load};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

fn settings(sink: &Sink) -> LoadSettings {
    LoadSettings {
        target: sink.address(),
        connections: 8,
        requests_max: 500,
        time_max: Duration::from_secs(20),
        pace: Pace::Closed,
    }
}

fn write(number: u64, request: &mut Vec<u8>) {
    let head = format!("PUT /resource/{number} HTTP/1.1\r\nhost: sink\r\ncontent-length: 2\r\n\r\n{{}}");
    request.extend_from_slice(head.as_bytes());
}

#[tokio::test]
async fn every_request_is_sent_once_and_every_response_is_counted() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let result = load(settings(&sink), Arc::new(write)).await.unwrap();
    assert_eq!((result.answered(), result.with_status(201), result.unanswered), (500, 500, 0));
    assert_eq!(result.latency.len(), 500);
    assert_eq!((sink.truth().applied, sink.truth().resources), (500, 500));
}

#[tokio::test]
async fn failed_connection_is_counted_and_reopened() {
    let faults = FaultPlan::scripted([Scripted::first(20, Fault::DropBefore)]);
    let sink = Sink::start(SinkSettings { faults, ..SinkSettings::default() }).unwrap();
    let result = load(settings(&sink), Arc::new(write)).await.unwrap();
    assert_eq!((result.answered(), result.unanswered), (480, 20));
    assert_eq!(sink.truth().applied, 480);
}

#[tokio::test]
async fn requested_rate_is_kept() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let paced = LoadSettings { requests_max: 51, pace: Pace::PerSecond(100), ..settings(&sink) };
    let result = load(paced, Arc::new(write)).await.unwrap();
    assert_eq!(result.answered(), 51);
    assert!(result.elapsed >= Duration::from_millis(500), "{:?}", result.elapsed);
}

#[tokio::test]
async fn only_loopback_addresses_are_allowed() {
    let error = Connection::open("192.0.2.1:80".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
