//! Pictures: drawn as SVG with classes, so that the style sheet colours them.

use askama::Template;
use serde_json::Value;

/// Length of a full bar, in pixels.
const GATE_WIDTH: u64 = 160;
/// Characters of a name in a box.
const NAME_MAX: usize = 18;

/// The gate of a destination: calls in flight, those allowed now, and the configured maximum.
#[derive(Clone, Debug, Template)]
#[template(path = "console/gate.svg", escape = "html")]
pub(super) struct Gate {
    breaker: String,
    paused: bool,
    in_flight: u64,
    allowed: u64,
    maximum: u64,
}

impl Gate {
    /// Reads the view of a gate.
    pub(super) fn new(gate: &Value) -> Gate {
        let count = |name: &str| gate.get(name).and_then(Value::as_u64).unwrap_or_default();
        Gate {
            breaker: gate.get("breaker").and_then(Value::as_str).unwrap_or("closed").to_owned(),
            paused: gate.get("paused").is_some_and(|paused| !paused.is_null()),
            in_flight: count("in_flight"),
            allowed: count("concurrency"),
            maximum: count("concurrency_max"),
        }
    }

    fn summary(&self) -> String {
        let paused = if self.paused { ", paused" } else { "" };
        format!(
            "{} in flight, {} allowed now, {} at most; breaker {}{paused}",
            self.in_flight, self.allowed, self.maximum, self.breaker
        )
    }

    fn share(&self, count: u64) -> u64 {
        (count.min(self.maximum) * GATE_WIDTH).checked_div(self.maximum).unwrap_or_default()
    }

    fn allowed_width(&self) -> u64 {
        self.share(self.allowed)
    }

    fn used_width(&self) -> u64 {
        self.share(self.in_flight)
    }

    fn class(&self) -> &'static str {
        if self.paused || self.breaker != "closed" { "gate-shut" } else { "gate-open" }
    }
}

/// A destination's gate with what waits before it.
#[derive(Clone, Debug, Template)]
#[template(path = "console/gate_picture.svg", escape = "html")]
pub(super) struct GatePicture {
    pub gate: Gate,
    pub name: String,
    /// Jobs that wait because of this destination.
    pub waiting: u64,
    /// Such as `10/s`; empty without a limit.
    pub rate: String,
}

impl GatePicture {
    fn summary(&self) -> String {
        let rate = if self.rate.is_empty() { "no rate limit".to_owned() } else { format!("at most {}", self.rate) };
        format!("{} jobs wait for {}; {}; {rate}", self.waiting, self.name, self.gate.summary())
    }

    fn short_name(&self) -> String {
        self.name.chars().take(NAME_MAX).collect()
    }

    /// The lever of the switch: down if calls go through.
    fn lever(&self) -> &'static str {
        match (self.gate.paused, self.gate.breaker.as_str()) {
            (false, "closed") => "M500 56H552",
            (false, "half-open") => "M500 56L548 44",
            _ => "M500 56L540 28",
        }
    }

    fn switch(&self) -> String {
        if self.gate.paused { "paused".to_owned() } else { format!("breaker {}", self.gate.breaker) }
    }

    fn allowed_width(&self) -> u64 {
        2 * self.gate.allowed_width()
    }

    fn used_width(&self) -> u64 {
        2 * self.gate.used_width()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gate_is_drawn_to_scale_and_described() {
        let gate = Gate::new(&json!({ "breaker": "open", "in_flight": 2, "concurrency": 4, "concurrency_max": 8 }));
        assert_eq!((gate.used_width(), gate.allowed_width(), gate.class()), (40, 80, "gate-shut"));
        assert!(gate.render().unwrap().contains("2 in flight, 4 allowed now, 8 at most; breaker open"));
        assert_eq!(Gate::new(&json!({})).allowed_width(), 0);
    }

    #[test]
    fn picture_of_a_gate_says_what_waits_and_why() {
        let gate = Gate::new(&json!({ "breaker": "open", "in_flight": 1, "concurrency": 1, "concurrency_max": 8 }));
        let picture = GatePicture { gate, name: "crm<b>".into(), waiting: 7, rate: "10/s".into() };
        let html = picture.render().unwrap();
        assert!(html.contains("7 jobs wait for crm") && html.contains("breaker open") && html.contains("at most 10/s"));
        assert!(!html.contains("<b>") && picture.lever() != "M500 56H552");
    }
}
