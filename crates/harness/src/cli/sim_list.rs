//! `sluice sim --list`: what can be simulated.

use serde_json::json;
use sluice_server::cli::CliError;
use sluice_server::cli::print::{self, heading, hint};
use sluice_server::config;
use sluice_simulator::faults::FAULTS;

/// Name, option, usual address, what it does.
const SIMULATORS: [(&str, &str, &str, &str); 10] = [
    ("salesforce", "--listen", "127.0.0.1:8090", "records, collections, tokens that expire, daily limit; always runs"),
    ("sink", "--sink", "127.0.0.1:8091", "takes any HTTP request and honours nothing"),
    ("mail", "--mail", "127.0.0.1:8025", "SMTP server that keeps what it accepts"),
    ("slack", "--slack", "127.0.0.1:8092", "Web API, incoming webhook and history"),
    (
        "hubspot",
        "--hubspot",
        "127.0.0.1:8093",
        "objects, batches, a search that lags, OAuth tokens that expire and rotate, limits",
    ),
    (
        "connector",
        "--connector NAME",
        "127.0.0.1:8094",
        "provider of a declared connector: recorded answers, batches, tokens that expire",
    ),
    ("s3", "--s3", "127.0.0.1:8095", "objects with If-None-Match and checksums"),
    ("ses", "--ses", "127.0.0.1:8096", "Amazon SES v2; refuses recipients at bounce.example"),
    ("webpush", "--webpush", "127.0.0.1:8097", "push service; /gone/ID is a subscription that ended"),
    (
        "openid",
        "--openid",
        "127.0.0.1:8099",
        "OpenID provider with users ann, bob and vic; keys rotate by POST /sim/rotate",
    ),
];

pub(super) fn print_list(as_json: bool) -> Result<(), CliError> {
    let connectors: Vec<&str> = config::shipped().iter().map(|connector| connector.definition.name.as_str()).collect();
    if as_json {
        let simulators: Vec<_> = SIMULATORS
            .iter()
            .map(|(name, option, address, about)| {
                json!({ "name": name, "option": option, "address": address, "about": about })
            })
            .collect();
        let faults: Vec<_> = FAULTS.iter().map(|(kind, about)| json!({ "kind": kind, "about": about })).collect();
        return print::json(&json!({ "simulators": simulators, "connectors": connectors, "faults": faults }));
    }
    let mut text = format!("{}\n", heading("Simulators"));
    for (name, option, address, about) in SIMULATORS {
        text.push_str(&format!("{name:<11} {option:<17} {address:<15} {about}\n"));
    }
    text.push_str(&format!("\n{}\n{}\n", heading("Connectors"), connectors.join(", ")));
    text.push_str(&format!("\n{}\n", heading("Faults")));
    for (kind, about) in FAULTS {
        text.push_str(&format!("{kind:<23} {about}\n"));
    }
    text.push_str(&hint("\n--fail PERCENT meets all of them but stale_read; --faults FILE.json picks. Addresses are examples: every option takes its own."));
    print::print(&text)
}
