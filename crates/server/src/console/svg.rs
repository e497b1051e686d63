//! Pictures: drawn as SVG with classes, so that the style sheet colours them.

use askama::Template;
use serde_json::Value;
use sluice_domain::time::Time;

/// Length of a full bar, in pixels.
const GATE_WIDTH: u64 = 160;
/// Points of one lane; the oldest ones are left out.
const POINTS_MAX: usize = 200;
const LEFT: i64 = 170;
const WIDTH: i64 = 860;
const LANE_HEIGHT: i64 = 28;

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
    pub fn new(gate: &Value) -> Gate {
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

/// What happened when: one lane for the requests, one for each job.
#[derive(Clone, Debug, Template)]
#[template(path = "console/timeline.svg", escape = "html")]
pub(super) struct Timeline {
    width: i64,
    height: i64,
    summary: String,
    lanes: Vec<Lane>,
    dots: Vec<Dot>,
}

#[derive(Clone, Debug)]
struct Lane {
    label: String,
    y: i64,
    text_y: i64,
    from: i64,
    to: i64,
}

#[derive(Clone, Debug)]
struct Dot {
    x: i64,
    y: i64,
    state: String,
    label: String,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// RFC 3339.
    pub at: String,
    /// State that gives the dot its colour.
    pub state: String,
    pub label: String,
}

impl Timeline {
    /// Lanes with their points. A point whose time cannot be read is left out.
    pub fn new(lanes: Vec<(String, Vec<Point>)>) -> Timeline {
        let millis = |point: &Point| Time::parse(&point.at).map(|at| at.0);
        let times: Vec<i64> = lanes.iter().flat_map(|(_, points)| points.iter().filter_map(millis)).collect();
        let (first, last) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
        let span = (last - first).max(1);
        let summary = format!("{} lanes, {} points over {} s", lanes.len(), times.len(), span / 1_000);
        let mut timeline = Timeline { width: WIDTH, height: 0, summary, lanes: vec![], dots: vec![] };
        for (index, (label, points)) in (0..).zip(lanes) {
            let y = LANE_HEIGHT * index + LANE_HEIGHT / 2;
            timeline.lanes.push(Lane { label, y, text_y: y + 4, from: LEFT, to: WIDTH - 10 });
            for point in points.iter().rev().take(POINTS_MAX) {
                let Some(at) = millis(point) else { continue };
                let x = LEFT + 10 + (at - first) * (WIDTH - LEFT - 30) / span;
                timeline.dots.push(Dot {
                    x,
                    y,
                    state: point.state.clone(),
                    label: format!("{} {}", point.at, point.label),
                });
            }
            timeline.height = y + LANE_HEIGHT / 2;
        }
        timeline
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
    fn timeline_places_points_between_first_and_last() {
        let point = |at: &str| Point { at: at.into(), state: "dead".into(), label: "x".into() };
        let points = vec![point("2026-11-17T10:00:00Z"), point("2026-11-17T10:00:10Z"), point("nonsense")];
        let timeline = Timeline::new(vec![("crm".into(), points)]);
        let x: Vec<i64> = timeline.dots.iter().map(|dot| dot.x).collect();
        assert_eq!(x, [WIDTH - 20, LEFT + 10]);
        assert!(timeline.render().unwrap().contains("2 points over 10 s"));
    }
}
