//! Writes small databases in the MaxMind format.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

const RECORD_BITS: u64 = 24;
/// Types of numbers. The metadata has a fixed one for each.
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const UINT64: u8 = 9;
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Zero bytes between the tree and the data.
const SEPARATOR: usize = 16;

#[derive(Clone, Copy)]
enum Record {
    Empty,
    Node(usize),
    Data(usize),
}

/// Writes a database with these networks and their entries, and replaces the file in one step, as updaters do.
pub(crate) fn write(path: &Path, networks: &[(&str, Value)]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes(networks)).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// An entry in the layout of a city database.
pub(crate) fn city(country: &str, region: &str, city: &str, timezone: &str) -> Value {
    json!({
        "country": {"iso_code": country, "names": {"en": country}},
        "subdivisions": [{"iso_code": "XX", "names": {"en": region}}],
        "city": {"names": {"en": city}},
        "location": {"time_zone": timezone},
    })
}

fn bytes(networks: &[(&str, Value)]) -> Vec<u8> {
    let mut nodes = vec![[Record::Empty; 2]];
    let mut data = Vec::new();
    for (network, entry) in networks {
        let (address, length) = network.split_once('/').unwrap();
        let (address, length) = (u32::from(address.parse::<Ipv4Addr>().unwrap()), length.parse::<u32>().unwrap());
        let offset = data.len();
        encode(entry, &mut data);
        let mut at = 0;
        for bit in 0..length {
            let side = (address >> (31 - bit) & 1) as usize;
            if bit + 1 == length {
                nodes[at][side] = Record::Data(offset);
            } else {
                at = match nodes[at][side] {
                    Record::Node(next) => next,
                    _ => {
                        nodes.push([Record::Empty; 2]);
                        let next = nodes.len() - 1;
                        nodes[at][side] = Record::Node(next);
                        next
                    }
                };
            }
        }
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for record in nodes.into_iter().flatten() {
        let value = match record {
            Record::Empty => count,
            Record::Node(node) => node,
            Record::Data(offset) => count + SEPARATOR + offset,
        };
        file.extend_from_slice(&u32::try_from(value).unwrap().to_be_bytes()[1..]);
    }
    file.extend_from_slice(&[0; SEPARATOR]);
    file.extend(data);
    file.extend_from_slice(MARKER);
    let metadata = json!({
        "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1_773_000_000,
        "database_type": "Test-City", "description": {"en": "for tests"}, "ip_version": 4, "languages": ["en"],
        "node_count": count, "record_size": RECORD_BITS,
    });
    encode(&metadata, &mut file);
    file
}

/// One value of the data section: a control byte with type and size, then the content.
fn encode(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            control(2, text.len(), to);
            to.extend_from_slice(text.as_bytes());
        }
        Value::Number(number) => encode_number(UINT32, number.as_u64().unwrap(), to),
        Value::Array(items) => {
            control(11, items.len(), to);
            items.iter().for_each(|item| encode(item, to));
        }
        Value::Object(members) => {
            control(7, members.len(), to);
            for (name, value) in members {
                encode(&json!(name), to);
                match (name.as_str(), value.as_u64()) {
                    ("build_epoch", Some(number)) => encode_number(UINT64, number, to),
                    ("ip_version" | "record_size", Some(number)) => encode_number(UINT16, number, to),
                    (name, Some(number)) if name.starts_with("binary_format") => encode_number(UINT16, number, to),
                    _ => encode(value, to),
                }
            }
        }
        other => panic!("no test writes {other}"),
    }
}

fn encode_number(kind: u8, number: u64, to: &mut Vec<u8>) {
    let content: Vec<u8> = number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    control(kind, content.len(), to);
    to.extend(content);
}

fn control(kind: u8, size: usize, to: &mut Vec<u8>) {
    let (size, more) = if size < 29 { (size as u8, None) } else { (29, Some(u8::try_from(size - 29).unwrap())) };
    if kind <= 7 {
        to.push(kind << 5 | size);
    } else {
        to.extend([size, kind - 7]);
    }
    to.extend(more);
}
