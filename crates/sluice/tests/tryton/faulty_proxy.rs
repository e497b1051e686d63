//! A proxy between the node and Tryton that loses calls: before they arrive, after they were applied, by holding them beyond
//! their time-out, or by handing them on late.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Faults in percent of the creates; `other` of all other calls, which are cut before or after they arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Cut before Tryton has it.
    pub before: u32,
    /// Applied, then cut.
    pub after: u32,
    /// Applied, then answered with 500.
    pub failed: u32,
    /// Held beyond the time-out, then handed on: it is applied late.
    pub late: f64,
    /// Applied, and the answer is held beyond the time-out.
    pub held: f64,
    pub other: u32,
}

pub(crate) struct FaultyProxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: u16,
    rates: Rates,
    /// Longer than the time-out of a call.
    hold: Duration,
    random: Mutex<u64>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl FaultyProxy {
    pub(crate) fn start(upstream: u16, rates: Rates, hold: Duration) -> FaultyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let names = ["before", "after", "failed", "late", "held", "other"];
        let counts = Mutex::new(names.into_iter().map(|name| (name, 0)).collect());
        let random = Mutex::new(0x9e37_79b9_7f4a_7c15);
        let shared = Arc::new(Shared { upstream, rates, hold, random, counts });
        let each = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = each.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        FaultyProxy { port, shared }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.shared.counts.lock().unwrap().clone()
    }
}

impl Shared {
    /// One request of a connection.
    fn serve(&self, mut client: TcpStream) {
        let Some(request) = read_request(&mut client) else { return };
        let is_create = String::from_utf8_lossy(&request).contains("party.party.create");
        let fault = self.choose(is_create);
        if let Some(fault) = fault {
            *self.counts.lock().unwrap().entry(fault).or_default() += 1;
        }
        match fault {
            Some("before" | "other") => {}
            Some("after") => {
                self.forward(&request);
            }
            Some("failed") => {
                self.forward(&request);
                let _ = client
                    .write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
            Some("late") => {
                std::thread::sleep(self.hold);
                self.forward(&request);
            }
            Some("held") => {
                self.forward(&request);
                std::thread::sleep(self.hold);
            }
            _ => {
                if let Some(answer) = self.forward(&request) {
                    let _ = client.write_all(&answer);
                }
            }
        }
    }

    fn choose(&self, is_create: bool) -> Option<&'static str> {
        let at = self.percent();
        let rates = self.rates;
        if !is_create {
            return (at < f64::from(rates.other)).then_some("other");
        }
        let kinds = [
            ("before", f64::from(rates.before)),
            ("after", f64::from(rates.after)),
            ("failed", f64::from(rates.failed)),
            ("late", rates.late),
            ("held", rates.held),
        ];
        let mut end = 0.0;
        kinds.into_iter().find_map(|(kind, rate)| {
            end += rate;
            (at < end).then_some(kind)
        })
    }

    fn percent(&self) -> f64 {
        let mut state = self.random.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state % 10_000) as f64 / 100.0
    }

    /// Hands a request on and returns the whole answer.
    fn forward(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut upstream = TcpStream::connect(("127.0.0.1", self.upstream)).ok()?;
        upstream.write_all(request).ok()?;
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).ok()?;
        Some(answer)
    }
}

/// A whole request that asks the server to close the connection behind its answer.
fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        let read = client.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
        });
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            let body = bytes.split_off(end + 4);
            return Some([head.as_bytes(), b"\r\nconnection: close\r\n\r\n", &body].concat());
        }
    }
}
