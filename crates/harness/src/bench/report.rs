//! Report of a benchmark, as JSON and as text.

use std::fmt;

use serde::Serialize;
use sluice_simulator::load::LoadResult;

use super::BenchSettings;
use crate::Memory;

const ACCEPT_FLOOR: f64 = 0.35;
const END_TO_END_FLOOR: f64 = 0.15;
const KEYS_FLOOR: f64 = 0.9;
const DRAIN_FLOOR: f64 = 0.9;
const HELD_FLOOR: f64 = 0.9;
const CONTACTS_FLOOR: f64 = 0.85;
const HISTORY_PER_MINUTE: f64 = 100_000.0;
const OBSERVED_FLOOR: f64 = 0.95;
const MEMORY_MAX_KIB: u64 = 128 * 1024;

/// Latency of answers, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Latency {
    pub(super) fn of(loaded: &LoadResult) -> Latency {
        Latency { p50_ms: loaded.latency_ms(0.5), p99_ms: loaded.latency_ms(0.99) }
    }
}

/// The baseline server, measured in rounds that alternate with the node.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Http {
    pub per_second: f64,
    pub latency: Latency,
}

impl Http {
    pub(super) fn of(loaded: &LoadResult) -> Http {
        Http { per_second: loaded.per_second(), latency: Latency::of(loaded) }
    }

    /// A rate as a share of the rate of the baseline.
    fn share(&self, per_second: f64) -> f64 {
        per_second / self.per_second
    }
}

/// Baseline of the disk.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Disk {
    /// Event rows written with plain SQLite in batches.
    pub rows_per_second: f64,
    /// Appends of 4 KiB, each followed by a flush.
    pub flushes_per_second: f64,
}

/// Accept only: the destination is paused.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Accept {
    pub http: Http,
    pub per_second: f64,
    /// From the request to its 202.
    pub latency: Latency,
    /// Mean operations per transaction.
    pub batch: f64,
    pub memory: Memory,
}

/// From the request to the applied effect.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EndToEnd {
    pub http: Http,
    /// Events per second, from the first request to the last applied effect.
    pub per_second: f64,
    /// Accepted events; equals the applied effects, otherwise the benchmark fails.
    pub accepted: u64,
    /// Accepts per second during the load.
    pub accept_per_second: f64,
    /// From the request to its 202.
    pub latency: Latency,
    /// From the last accept to the last effect.
    pub drain_seconds: f64,
    pub memory: Memory,
}

/// A ledger with many keys against an empty one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Keys {
    pub keys: u64,
    /// Accepts per second of an empty ledger.
    pub empty_per_second: f64,
    /// Accepts per second with that many keys.
    pub per_second: f64,
    /// From the start of the process, with as many waiting jobs, to the first accept.
    pub recovery_seconds: f64,
    pub memory: Memory,
}

/// A backlog against new events.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Drain {
    /// Jobs in the backlog.
    pub jobs: u64,
    /// Jobs per second, from the end of the pause to the last applied effect.
    pub per_second: f64,
    /// As many new events per second, from the first request to the last applied effect.
    pub new_per_second: f64,
    pub memory: Memory,
}

impl Drain {
    fn share(&self) -> f64 {
        self.per_second / self.new_per_second
    }
}

/// A new configuration on stored requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct HistoryTrial {
    pub events: u64,
    pub per_second: f64,
    pub memory: Memory,
}

/// A destination that fails some of its calls at random.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct HeldConcurrency {
    pub failure_percent: u8,
    /// Share of the calls that failed.
    pub failed_share: f64,
    /// Configured concurrency of the destination.
    pub concurrency_max: u32,
    /// Mean of the calls in flight, as a share of the configured concurrency.
    pub held: f64,
    /// Calls that the destination received.
    pub calls_per_second: f64,
}

/// Events per second of two nodes that take turns.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WithAndWithout {
    pub without_per_second: f64,
    pub with_per_second: f64,
}

impl WithAndWithout {
    fn share(&self) -> f64 {
        self.with_per_second / self.without_per_second
    }
}

/// A node that keeps contacts against one that does not.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Contacts {
    pub accept: WithAndWithout,
    /// From the first request to the last applied effect.
    pub end_to_end: WithAndWithout,
    pub memory: Memory,
}

/// A node that is observed against one that is not.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Observe {
    pub accept_off_per_second: f64,
    pub accept_on_per_second: f64,
    pub end_to_end_off_per_second: f64,
    pub end_to_end_on_per_second: f64,
    /// Spans that the receiver got.
    pub spans: u64,
    pub memory: Memory,
}

impl Observe {
    fn shares(&self) -> (f64, f64) {
        let accept = self.accept_on_per_second / self.accept_off_per_second;
        (accept, self.end_to_end_on_per_second / self.end_to_end_off_per_second)
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub accept: Option<Accept>,
    pub end_to_end: Option<EndToEnd>,
    pub keys: Option<Keys>,
    pub drain: Option<Drain>,
    pub history: Option<HistoryTrial>,
    /// By the share of failed calls; empty if not measured.
    pub failures: Vec<HeldConcurrency>,
    pub contacts: Option<Contacts>,
    pub observe: Option<Observe>,
}

impl Figures {
    /// The largest peak memory of a node, in KiB.
    fn peak_kib(&self) -> Option<u64> {
        let Figures { accept, end_to_end, keys, drain, contacts, .. } = self;
        let memories = [
            accept.map(|a| a.memory),
            end_to_end.map(|e| e.memory),
            keys.map(|k| k.memory),
            drain.map(|d| d.memory),
            contacts.map(|c| c.memory),
        ];
        memories.into_iter().flatten().map(|memory| memory.peak_kib).max()
    }

    /// Figures that are shares, with their required values.
    fn floors(&self) -> Vec<Floor> {
        let at_least = |name: &str, value: f64, wanted: f64| {
            let name = name.to_owned();
            Floor { name, value, wanted, reached: value >= wanted }
        };
        let mut floors = Vec::new();
        floors.extend(
            self.accept
                .map(|accept| at_least("accept of bare HTTP", accept.http.share(accept.per_second), ACCEPT_FLOOR)),
        );
        floors.extend(
            self.end_to_end
                .map(|end| at_least("end to end of bare HTTP", end.http.share(end.per_second), END_TO_END_FLOOR)),
        );
        floors.extend(
            self.keys.map(|keys| at_least("many keys of none", keys.per_second / keys.empty_per_second, KEYS_FLOOR)),
        );
        floors.extend(self.drain.map(|drain| at_least("drain of new events", drain.share(), DRAIN_FLOOR)));
        floors.extend(self.history.map(|history| {
            at_least("history of 100,000 a minute", history.per_second * 60.0 / HISTORY_PER_MINUTE, 1.0)
        }));
        for held in &self.failures {
            floors.push(at_least(&format!("held, {} % failing", held.failure_percent), held.held, HELD_FLOOR));
        }
        if let Some(contacts) = &self.contacts {
            floors.push(at_least("accept with contacts", contacts.accept.share(), CONTACTS_FLOOR));
            floors.push(at_least("end to end with contacts", contacts.end_to_end.share(), CONTACTS_FLOOR));
        }
        if let Some((accept, end_to_end)) = self.observe.map(|observe| observe.shares()) {
            floors.push(at_least("observed accept", accept, OBSERVED_FLOOR));
            floors.push(at_least("observed end to end", end_to_end, OBSERVED_FLOOR));
        }
        floors
    }
}

/// A figure and its required value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Floor {
    pub name: String,
    pub value: f64,
    pub wanted: f64,
    pub reached: bool,
}

/// Figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub cores: usize,
    pub connections: usize,
    /// Minimum size of a body.
    pub body_bytes: usize,
    pub disk: Disk,
    #[serde(flatten)]
    pub figures: Figures,
    pub floors: Vec<Floor>,
}

impl Report {
    pub(super) fn new(settings: &BenchSettings, disk: Disk, figures: Figures) -> Report {
        let mut floors = figures.floors();
        // The memory of a node in this process includes that of the client.
        if settings.host != super::NodeHost::InProcess
            && let Some(peak) = figures.peak_kib()
        {
            let mib = |kib: u64| kib as f64 / 1024.0;
            let (name, value, wanted) = ("peak memory, MiB".to_owned(), mib(peak), mib(MEMORY_MAX_KIB));
            floors.push(Floor { name, value, wanted, reached: peak < MEMORY_MAX_KIB });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (connections, body_bytes) = (settings.connections, settings.body_bytes);
        Report { cores, connections, body_bytes, disk, figures, floors }
    }

    /// True if every figure reaches its required value.
    pub(crate) fn all_reached(&self) -> bool {
        self.floors.iter().all(|floor| floor.reached)
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, figure: String, rest: &str) -> fmt::Result {
    writeln!(f, "  {name:<28}{figure:>12}   {rest}")
}

fn rate(per_second: f64) -> String {
    format!("{per_second:.0}/s")
}

fn latency(latency: &Latency) -> String {
    format!("p50 {:.2} ms, p99 {:.2} ms", latency.p50_ms, latency.p99_ms)
}

fn baseline(f: &mut fmt::Formatter<'_>, http: &Http) -> fmt::Result {
    row(f, "bare HTTP, nothing kept", rate(http.per_second), &latency(&http.latency))
}

fn memory(memory: &Memory) -> String {
    let mib = |kib: u64| kib as f64 / 1024.0;
    format!("memory {:.0} MiB, at most {:.0} MiB", mib(memory.resident_kib), mib(memory.peak_kib))
}

fn accept_rows(f: &mut fmt::Formatter<'_>, accept: &Accept, disk: &Disk) -> fmt::Result {
    baseline(f, &accept.http)?;
    let shares = format!(
        "{:.2} of bare HTTP, {:.2} of bare SQLite",
        accept.http.share(accept.per_second),
        accept.per_second / disk.rows_per_second
    );
    row(f, "accept, durable", rate(accept.per_second), &shares)?;
    row(f, "", String::new(), &format!("{}, {:.0} in a commit", latency(&accept.latency), accept.batch))?;
    row(f, "", String::new(), &memory(&accept.memory))
}

fn end_to_end_rows(f: &mut fmt::Formatter<'_>, end: &EndToEnd) -> fmt::Result {
    baseline(f, &end.http)?;
    let share = end.http.share(end.per_second);
    let shares = format!("{share:.2} of bare HTTP; {} events, {} effects", end.accepted, end.accepted);
    row(f, "end to end, effect applied", rate(end.per_second), &shares)?;
    let meanwhile = format!(
        "accepted at {} meanwhile ({}), the rest drained in {:.1} s",
        rate(end.accept_per_second),
        latency(&end.latency),
        end.drain_seconds
    );
    row(f, "", String::new(), &meanwhile)?;
    row(f, "", String::new(), &memory(&end.memory))
}

fn keys_rows(f: &mut fmt::Formatter<'_>, keys: &Keys) -> fmt::Result {
    let share = keys.per_second / keys.empty_per_second;
    let shares = format!("{share:.2} of an empty ledger ({})", rate(keys.empty_per_second));
    row(f, &format!("accept with {} keys", keys.keys), rate(keys.per_second), &shares)?;
    let recovery = format!("{:.2} s", keys.recovery_seconds);
    row(f, "start with as many jobs", recovery, "from the start of the process to the first 202")?;
    row(f, "", String::new(), &memory(&keys.memory))
}

fn drain_rows(f: &mut fmt::Formatter<'_>, drain: &Drain) -> fmt::Result {
    row(f, "new events, effect applied", rate(drain.new_per_second), "as many as the backlog has jobs")?;
    let share = format!("{:.2} of new events", drain.share());
    row(f, &format!("backlog of {} jobs", drain.jobs), rate(drain.per_second), &share)?;
    row(f, "", String::new(), &memory(&drain.memory))
}

fn history_rows(f: &mut fmt::Formatter<'_>, history: &HistoryTrial) -> fmt::Result {
    let name = format!("{} stored requests", history.events);
    row(f, &name, rate(history.per_second), "each under two configurations, with its calls")?;
    row(f, "", String::new(), &memory(&history.memory))
}

fn failures_row(f: &mut fmt::Formatter<'_>, held: &HeldConcurrency) -> fmt::Result {
    let HeldConcurrency { failure_percent, failed_share, concurrency_max, held, calls_per_second } = held;
    let share =
        format!("{held:.2} of {concurrency_max} calls at once held; {:.1} % of the calls failed", failed_share * 100.0);
    row(f, &format!("{failure_percent} % random failures"), rate(*calls_per_second), &share)
}

fn contacts_rows(f: &mut fmt::Formatter<'_>, contacts: &Contacts) -> fmt::Result {
    for (name, figures) in [("accept", contacts.accept), ("end to end", contacts.end_to_end)] {
        row(f, &format!("{name}, no contacts"), rate(figures.without_per_second), "two events for each person")?;
        let share = format!("{:.3} of the same without", figures.share());
        row(f, &format!("{name}, contacts kept"), rate(figures.with_per_second), &share)?;
    }
    row(f, "", String::new(), &memory(&contacts.memory))
}

fn observe_rows(f: &mut fmt::Formatter<'_>, observe: &Observe) -> fmt::Result {
    let (accept, end_to_end) = observe.shares();
    let of = |share: f64, off: f64| format!("{share:.2} of a node that is not observed ({})", rate(off));
    row(f, "accept, observed", rate(observe.accept_on_per_second), &of(accept, observe.accept_off_per_second))?;
    let shares = of(end_to_end, observe.end_to_end_off_per_second);
    row(f, "end to end, observed", rate(observe.end_to_end_on_per_second), &shares)?;
    row(f, "", String::new(), &format!("{} spans exported; {}", observe.spans, memory(&observe.memory)))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disk { rows_per_second: rows, flushes_per_second: flushes } = self.disk;
        writeln!(
            f,
            "This machine ({} cores), {} connections, bodies of {} bytes:",
            self.cores, self.connections, self.body_bytes
        )?;
        row(f, "bare SQLite, batches of 256", rate(rows), "the same rows, keys in sequence")?;
        row(f, "4 KiB append and flush", rate(flushes), &format!("{:.3} ms each", 1e3 / flushes))?;
        writeln!(f, "\nThe node, in turns with a bare server:")?;
        let Figures { accept, end_to_end, keys, drain, history, failures, contacts, observe } = &self.figures;
        accept.iter().try_for_each(|accept| accept_rows(f, accept, &self.disk))?;
        end_to_end.iter().try_for_each(|end| end_to_end_rows(f, end))?;
        keys.iter().try_for_each(|keys| keys_rows(f, keys))?;
        drain.iter().try_for_each(|drain| drain_rows(f, drain))?;
        history.iter().try_for_each(|history| history_rows(f, history))?;
        failures.iter().try_for_each(|held| failures_row(f, held))?;
        contacts.iter().try_for_each(|contacts| contacts_rows(f, contacts))?;
        observe.iter().try_for_each(|observe| observe_rows(f, observe))?;
        writeln!(f)?;
        for floor in &self.floors {
            let word = if floor.reached { "reached" } else { "BELOW" };
            let (value, wanted) = if floor.wanted > 1.0 {
                (format!("{:.0}", floor.value), format!("below {:.0}", floor.wanted))
            } else {
                // Truncated, not rounded: a share just below its floor must not look as if it reached it.
                (format!("{:.3}", (floor.value * 1e3).floor() / 1e3), format!("at least {:.2}", floor.wanted))
            };
            row(f, &floor.name, value, &format!("{word} ({wanted})"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{BenchKind, NodeHost};
    use std::time::Duration;

    fn report(accept_per_second: f64, peak_kib: u64) -> Report {
        let settings = BenchSettings {
            kind: BenchKind::Accept,
            time: Duration::from_secs(1),
            connections: 64,
            body_bytes: 700,
            keys: 0,
            jobs: 0,
            ledger: None,
            host: NodeHost::Process("sluice".into()),
        };
        let quick = Latency { p50_ms: 1.0, p99_ms: 2.0 };
        let http = Http { per_second: 1_000.0, latency: quick };
        let disk = Disk { rows_per_second: 2_000.0, flushes_per_second: 500.0 };
        let memory = Memory { resident_kib: peak_kib, peak_kib };
        let accept = Accept { http, per_second: accept_per_second, latency: quick, batch: 8.0, memory };
        Report::new(&settings, disk, Figures { accept: Some(accept), ..Figures::default() })
    }

    #[test]
    fn figure_below_its_floor_is_reported_and_fails_the_check() {
        assert!(report(350.0, 1024).all_reached());
        assert!(!report(349.0, 1024).all_reached());
        assert!(!report(350.0, MEMORY_MAX_KIB).all_reached());
        let text = report(349.0, 1024).to_string();
        assert!(text.contains("BELOW (at least 0.35)") && text.contains("0.17 of bare SQLite"), "{text}");
        assert!(report(349.99, 1024).to_string().contains("0.349   BELOW"), "not rounded up");
    }

    #[test]
    fn observation_that_costs_more_than_a_twentieth_is_reported() {
        let memory = Memory { resident_kib: 1, peak_kib: 1 };
        let observe = |on| Observe {
            accept_off_per_second: 100.0,
            accept_on_per_second: on,
            end_to_end_off_per_second: 10.0,
            end_to_end_on_per_second: 9.6,
            spans: 7,
            memory,
        };
        let reached = |on| {
            let floors = Figures { observe: Some(observe(on)), ..Figures::default() }.floors();
            floors.into_iter().map(|floor| floor.reached).collect::<Vec<_>>()
        };
        assert_eq!((reached(96.0), reached(94.0)), (vec![true, true], vec![false, true]));
    }

    #[test]
    fn drain_and_held_concurrency_below_their_floors_are_reported() {
        let memory = Memory { resident_kib: 1, peak_kib: 1 };
        let drain = |per_second| Drain { jobs: 9, per_second, new_per_second: 1_000.0, memory };
        let held = |held| HeldConcurrency {
            failure_percent: 30,
            failed_share: 0.3,
            concurrency_max: 64,
            held,
            calls_per_second: 1.0,
        };
        let reached = |drain_per_second, held_share| {
            let (drain, failures) = (Some(drain(drain_per_second)), vec![held(held_share)]);
            Figures { drain, failures, ..Figures::default() }
                .floors()
                .into_iter()
                .map(|floor| floor.reached)
                .collect::<Vec<_>>()
        };
        assert_eq!(reached(900.0, 0.9), [true, true]);
        assert_eq!(reached(899.0, 0.89), [false, false]);
    }
}
