//! What was measured, as numbers and as text.

use std::fmt;

use serde::Serialize;
use sluice_simulator::load::LoadResult;

use super::BenchSettings;
use crate::Memory;

const ACCEPT_FLOOR: f64 = 0.35;
const END_TO_END_FLOOR: f64 = 0.15;
const KEYS_FLOOR: f64 = 0.9;
const MEMORY_MAX_KIB: u64 = 128 * 1024;

/// Latency of answers, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of the answers were faster.
    pub p50_ms: f64,
    /// All but one in a hundred were faster.
    pub p99_ms: f64,
}

impl Latency {
    pub(super) fn of(loaded: &LoadResult) -> Latency {
        Latency { p50_ms: loaded.latency_ms(0.5), p99_ms: loaded.latency_ms(0.99) }
    }
}

/// A bare HTTP server that verifies and parses, and keeps nothing, in turns with the node.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Http {
    /// Requests that it answered.
    pub per_second: f64,
    /// From the request to its answer.
    pub latency: Latency,
}

impl Http {
    pub(super) fn of(loaded: &LoadResult) -> Http {
        Http { per_second: loaded.per_second(), latency: Latency::of(loaded) }
    }

    /// So many a second, as a share of this.
    fn share(&self, per_second: f64) -> f64 {
        per_second / self.per_second
    }
}

/// What the machine's disk can do.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Disk {
    /// Rows of events through bare SQLite in batches.
    pub rows_per_second: f64,
    /// Appends of 4 KiB, each flushed.
    pub flushes_per_second: f64,
}

/// Durable accept alone.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Accept {
    /// What it is held against.
    pub http: Http,
    /// Events accepted.
    pub per_second: f64,
    /// From the request to its 202.
    pub latency: Latency,
    /// Operations in a transaction, on average.
    pub batch: f64,
    /// Of the node.
    pub memory: Memory,
}

/// From the request to the applied effect.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EndToEnd {
    /// What it is held against.
    pub http: Http,
    /// Events whose effect was applied, from the first request to the last effect.
    pub per_second: f64,
    /// Events accepted, and effects applied: the same number, or there is no report.
    pub accepted: u64,
    /// Events accepted a second meanwhile.
    pub accept_per_second: f64,
    /// From the request to its 202, meanwhile.
    pub latency: Latency,
    /// From the last accept to the last effect.
    pub drain_seconds: f64,
    /// Of the node.
    pub memory: Memory,
}

/// A ledger with many keys against an empty one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Keys {
    /// How many.
    pub keys: u64,
    /// Events accepted by an empty ledger, in turns with it.
    pub empty_per_second: f64,
    /// Events accepted with so many keys.
    pub per_second: f64,
    /// From the start of the process with as many waiting jobs to the first accepted event.
    pub recovery_seconds: f64,
    /// Of the node.
    pub memory: Memory,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    /// Which figure.
    pub name: &'static str,
    /// What it is.
    pub value: f64,
    /// What it should be.
    pub wanted: f64,
    /// Whether it is.
    pub reached: bool,
}

/// Everything that was measured in one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Cores of this machine.
    pub cores: usize,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a body, at least.
    pub body_bytes: usize,
    /// What the machine's disk can do.
    pub disk: Disk,
    /// Durable accept alone.
    pub accept: Option<Accept>,
    /// From the request to the applied effect.
    pub end_to_end: Option<EndToEnd>,
    /// Many keys against none.
    pub keys: Option<Keys>,
    /// What should be reached.
    pub floors: Vec<Floor>,
}

impl Report {
    pub(super) fn new(
        settings: &BenchSettings,
        disk: Disk,
        accept: Option<Accept>,
        end_to_end: Option<EndToEnd>,
        keys: Option<Keys>,
    ) -> Report {
        let at_least = |name, value: f64, wanted: f64| Floor { name, value, wanted, reached: value >= wanted };
        let mut floors = Vec::new();
        floors.extend(
            accept.map(|accept| at_least("accept of bare HTTP", accept.http.share(accept.per_second), ACCEPT_FLOOR)),
        );
        floors.extend(
            end_to_end.map(|end| at_least("end to end of bare HTTP", end.http.share(end.per_second), END_TO_END_FLOOR)),
        );
        floors.extend(
            keys.map(|keys| at_least("many keys of none", keys.per_second / keys.empty_per_second, KEYS_FLOOR)),
        );
        let memories = [accept.map(|a| a.memory), end_to_end.map(|e| e.memory), keys.map(|k| k.memory)];
        // A node in this process shares its memory with the client.
        if settings.home != super::NodeHost::Here
            && let Some(peak) = memories.into_iter().flatten().map(|memory| memory.peak_kib).max()
        {
            let mib = |kib: u64| kib as f64 / 1024.0;
            let (value, wanted) = (mib(peak), mib(MEMORY_MAX_KIB));
            floors.push(Floor { name: "peak memory, MiB", value, wanted, reached: peak < MEMORY_MAX_KIB });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (connections, body_bytes) = (settings.connections, settings.body_bytes);
        Report { cores, connections, body_bytes, disk, accept, end_to_end, keys, floors }
    }

    /// Whether every figure is what it should be.
    pub fn all_reached(&self) -> bool {
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

fn bare(f: &mut fmt::Formatter<'_>, http: &Http) -> fmt::Result {
    row(f, "bare HTTP, nothing kept", rate(http.per_second), &latency(&http.latency))
}

fn memory(memory: &Memory) -> String {
    let mib = |kib: u64| kib as f64 / 1024.0;
    format!("memory {:.0} MiB, at most {:.0} MiB", mib(memory.resident_kib), mib(memory.peak_kib))
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
        if let Some(accept) = &self.accept {
            bare(f, &accept.http)?;
            let shares = format!(
                "{:.2} of bare HTTP, {:.2} of bare SQLite",
                accept.http.share(accept.per_second),
                accept.per_second / rows
            );
            row(f, "accept, durable", rate(accept.per_second), &shares)?;
            row(f, "", String::new(), &format!("{}, {:.0} in a commit", latency(&accept.latency), accept.batch))?;
            row(f, "", String::new(), &memory(&accept.memory))?;
        }
        if let Some(end) = &self.end_to_end {
            bare(f, &end.http)?;
            let shares = format!(
                "{:.2} of bare HTTP; {} events, {} effects",
                end.http.share(end.per_second),
                end.accepted,
                end.accepted
            );
            row(f, "end to end, effect applied", rate(end.per_second), &shares)?;
            let meanwhile = format!(
                "accepted at {} meanwhile ({}), the rest drained in {:.1} s",
                rate(end.accept_per_second),
                latency(&end.latency),
                end.drain_seconds
            );
            row(f, "", String::new(), &meanwhile)?;
            row(f, "", String::new(), &memory(&end.memory))?;
        }
        if let Some(keys) = &self.keys {
            let share = keys.per_second / keys.empty_per_second;
            let shares = format!("{share:.2} of an empty ledger ({})", rate(keys.empty_per_second));
            row(f, &format!("accept with {} keys", keys.keys), rate(keys.per_second), &shares)?;
            let recovery = format!("{:.2} s", keys.recovery_seconds);
            row(f, "start with as many jobs", recovery, "from the start of the process to the first 202")?;
            row(f, "", String::new(), &memory(&keys.memory))?;
        }
        writeln!(f)?;
        for floor in &self.floors {
            let word = if floor.reached { "reached" } else { "BELOW" };
            let (value, wanted) = if floor.wanted > 1.0 {
                (format!("{:.0}", floor.value), format!("below {:.0}", floor.wanted))
            } else {
                // Cut off, not rounded: a share that is below what it should be must not look as if it were not.
                (format!("{:.3}", (floor.value * 1e3).floor() / 1e3), format!("at least {:.2}", floor.wanted))
            };
            row(f, floor.name, value, &format!("{word} ({wanted})"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{NodeHost, What};
    use std::time::Duration;

    fn report(accept_per_second: f64, peak_kib: u64) -> Report {
        let settings = BenchSettings {
            what: What::Accept,
            time: Duration::from_secs(1),
            connections: 64,
            body_bytes: 700,
            keys: 0,
            home: NodeHost::Process("sluice".into()),
        };
        let quick = Latency { p50_ms: 1.0, p99_ms: 2.0 };
        let http = Http { per_second: 1_000.0, latency: quick };
        let disk = Disk { rows_per_second: 2_000.0, flushes_per_second: 500.0 };
        let memory = Memory { resident_kib: peak_kib, peak_kib };
        let accept = Accept { http, per_second: accept_per_second, latency: quick, batch: 8.0, memory };
        Report::new(&settings, disk, Some(accept), None, None)
    }

    #[test]
    fn a_figure_below_its_floor_is_said_and_fails_the_check() {
        assert!(report(350.0, 1024).all_reached());
        assert!(!report(349.0, 1024).all_reached());
        assert!(!report(350.0, MEMORY_MAX_KIB).all_reached());
        let text = report(349.0, 1024).to_string();
        assert!(text.contains("BELOW (at least 0.35)") && text.contains("0.17 of bare SQLite"), "{text}");
        assert!(report(349.99, 1024).to_string().contains("0.349   BELOW"), "not rounded up");
    }
}
