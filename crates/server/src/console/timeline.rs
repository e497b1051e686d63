//! What happened to an event or a job, drawn on one axis of time: attempts as dots, waits with their reasons as bars.

use askama::Template;
use jiff::tz::TimeZone;
use sluice_domain::time::Time;

use crate::operate::views::{AttemptView, JobDetail};

/// Points of one lane; the oldest ones are left out.
const POINTS_MAX: usize = 200;
const LEFT: i64 = 170;
const WIDTH: i64 = 860;
const LANE_HEIGHT: i64 = 40;
const AXIS_HEIGHT: i64 = 20;
/// A bar is at least so wide, in pixels.
const BAR_MIN: i64 = 2;
/// Characters of a lane's name.
const NAME_MAX: usize = 24;

#[derive(Clone, Debug, Template)]
#[template(path = "console/timeline.svg", escape = "html")]
pub(super) struct Timeline {
    width: i64,
    height: i64,
    summary: String,
    lanes: Vec<DrawnLane>,
    bars: Vec<Bar>,
    dots: Vec<Dot>,
    axis: Vec<AxisLabel>,
}

/// A row of the picture.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub label: String,
    pub points: Vec<Point>,
    pub spans: Vec<Span>,
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

/// Something that lasted.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub from: Time,
    pub to: Time,
    pub state: String,
    pub label: String,
}

#[derive(Clone, Debug)]
struct DrawnLane {
    label: String,
    y: i64,
    text_y: i64,
}

#[derive(Clone, Debug)]
struct Bar {
    x: i64,
    y: i64,
    width: i64,
    state: String,
    label: String,
    /// As much of the label as there is room for.
    text: String,
}

#[derive(Clone, Debug)]
struct Dot {
    x: i64,
    y: i64,
    state: String,
    label: String,
}

#[derive(Clone, Debug)]
struct AxisLabel {
    x: i64,
    anchor: &'static str,
    label: String,
}

/// Duration for people.
pub(super) fn length(from: Time, to: Time) -> String {
    match to.since(from).as_millis() {
        millis if millis < 1_000 => format!("{millis} ms"),
        millis if millis < 120_000 => format!("{:.1} s", millis as f64 / 1_000.0),
        millis if millis < 7_200_000 => format!("{} min", millis / 60_000),
        millis if millis < 172_800_000 => format!("{} h", millis / 3_600_000),
        millis => format!("{} days", millis / 86_400_000),
    }
}

impl Timeline {
    /// A point whose time cannot be read is left out.
    pub(super) fn new(lanes: Vec<Lane>, zone: &TimeZone) -> Timeline {
        let at = |point: &Point| Time::parse(&point.at);
        let points = lanes.iter().flat_map(|lane| lane.points.iter().filter_map(at));
        let ends = lanes.iter().flat_map(|lane| lane.spans.iter().flat_map(|span| [span.from, span.to]));
        let times: Vec<Time> = points.chain(ends).collect();
        let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
        let (first, last) = (first.unwrap_or(Time(0)), last.unwrap_or(Time(0)));
        let scale = (last.0 - first.0).max(1);
        let x_of = |at: Time| LEFT + 10 + (at.0 - first.0) * (WIDTH - LEFT - 30) / scale;
        let count: usize = lanes.iter().map(|lane| lane.points.len()).sum();
        let summary = format!("{} lanes, {count} points over {}", lanes.len(), length(first, last));
        let axis = [(first, "start"), (last, "end")].map(|(at, anchor)| AxisLabel {
            x: x_of(at),
            anchor,
            label: at.to_jiff().to_zoned(zone.clone()).strftime("%d %b %H:%M:%S").to_string(),
        });
        let height = LANE_HEIGHT * lanes.len() as i64 + AXIS_HEIGHT;
        let axis = if times.is_empty() { vec![] } else { axis.to_vec() };
        let mut timeline = Timeline { width: WIDTH, height, summary, lanes: vec![], bars: vec![], dots: vec![], axis };
        for (index, lane) in (0..).zip(lanes) {
            let y = LANE_HEIGHT * index + LANE_HEIGHT / 2 + 6;
            timeline.lanes.push(DrawnLane { label: shortened(&lane.label), y, text_y: y + 4 });
            for span in lane.spans.into_iter().rev().take(POINTS_MAX) {
                let (x, end) = (x_of(span.from), x_of(span.to));
                let label = format!("{}, {}", span.label, length(span.from, span.to));
                let width = (end - x).max(BAR_MIN);
                timeline.bars.push(Bar { x, y: y - 3, width, state: span.state, text: fitting(&label, width), label });
            }
            for point in lane.points.into_iter().rev().take(POINTS_MAX) {
                let Some(at) = Time::parse(&point.at) else { continue };
                let label = format!("{} {}", point.at, point.label);
                timeline.dots.push(Dot { x: x_of(at), y, state: point.state, label });
            }
        }
        timeline
    }
}

/// As much of a text as fits beside a bar; nothing if that would be a few letters.
fn fitting(text: &str, width: i64) -> String {
    const LETTER_WIDTH: i64 = 6;
    let room = usize::try_from(width / LETTER_WIDTH).unwrap_or_default();
    match text.chars().count() {
        _ if room < 8 => String::new(),
        count if count <= room => text.to_owned(),
        _ => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

fn shortened(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// State that gives an outcome its colour.
fn state_of(outcome: &str) -> &'static str {
    match outcome {
        "done" => "succeeded",
        "noop" => "noop",
        "retry" => "retrying",
        "wait" => "waiting",
        "unsure" => "unknown",
        _ => "dead",
    }
}

fn started(attempt: &AttemptView) -> Option<Time> {
    Time::parse(&attempt.started_at)
}

fn ended(attempt: &AttemptView) -> Option<Time> {
    Some(started(attempt)? + std::time::Duration::from_millis(attempt.took_ms))
}

/// Why nothing happened after an attempt.
pub(super) fn wait_after(attempt: &AttemptView) -> String {
    let code = attempt.failure.as_ref().map(|failure| failure.code.as_str()).unwrap_or_default();
    match attempt.outcome.as_str() {
        "retry" => format!("back-off after {code}"),
        "wait" => format!("held back: {code}"),
        "unsure" => "until the outcome was known".to_owned(),
        _ => "until the next step".to_owned(),
    }
}

/// Time between an attempt and the next one; `None` if it went on at once.
pub(super) fn waited(attempt: &AttemptView, next: &AttemptView) -> Option<(Time, Time)> {
    let (from, to) = (ended(attempt)?, started(next)?);
    (to.0 - from.0 > 1).then_some((from, to))
}

/// The attempts of a job with the waits between them, and its end. A live job waits until now.
pub(super) fn job_lane(detail: &JobDetail, now: Time) -> Lane {
    let job = &detail.job;
    let attempts = &detail.attempts_made;
    let point = |attempt: &AttemptView| Point {
        at: attempt.started_at.clone(),
        state: state_of(&attempt.outcome).to_owned(),
        label: format!(
            "attempt {} of {}: {}{}, {} ms",
            attempt.n,
            attempt.step,
            attempt.outcome,
            attempt.failure.as_ref().map_or_else(String::new, |failure| format!(" ({})", failure.code)),
            attempt.took_ms
        ),
    };
    let mut points: Vec<Point> = attempts.iter().map(point).collect();
    let span = |(from, to): (Time, Time), state: &str, label: String| Span { from, to, state: state.to_owned(), label };
    let mut spans = vec![];
    let received = Time::parse(&job.first_received_at);
    if let (Some(from), Some(to)) = (received, attempts.first().and_then(started)) {
        spans.push(span((from, to.max(from)), "queued", "queued".to_owned()));
    }
    for pair in attempts.windows(2) {
        if let Some(times) = waited(&pair[0], &pair[1]) {
            spans.push(span(times, state_of(&pair[0].outcome), wait_after(&pair[0])));
        }
    }
    match (&job.finished_at, &job.waiting_for) {
        (Some(at), _) => {
            points.push(Point { at: at.clone(), state: job.state.clone(), label: job.state.clone() });
        }
        (None, wait) => {
            let from = attempts.last().and_then(ended).or(received).unwrap_or(now);
            let label = wait.as_ref().map_or_else(|| job.state.clone(), |wait| wait.message.clone());
            spans.push(span((from, now.max(from)), &job.state, label));
        }
    }
    Lane { label: job.worker.clone(), points, spans }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: &str) -> Point {
        Point { at: at.into(), state: "dead".into(), label: "x".into() }
    }

    #[test]
    fn timeline_places_points_between_first_and_last() {
        let points = vec![point("2026-11-17T10:00:00Z"), point("2026-11-17T10:00:10Z"), point("nonsense")];
        let lane = Lane { label: "crm".into(), points, spans: vec![] };
        let timeline = Timeline::new(vec![lane], &TimeZone::UTC);
        let x: Vec<i64> = timeline.dots.iter().map(|dot| dot.x).collect();
        assert_eq!(x, [WIDTH - 20, LEFT + 10]);
        let html = timeline.render().unwrap();
        assert!(html.contains("over 10.0 s") && html.contains("17 Nov 10:00:10"), "{html}");
    }

    #[test]
    fn wait_is_a_bar_with_its_reason_and_length() {
        let (from, to) = (Time::parse("2026-11-17T10:00:00Z").unwrap(), Time::parse("2026-11-17T10:01:00Z").unwrap());
        let span = Span { from, to, state: "waiting".into(), label: "breaker open".into() };
        let timeline =
            Timeline::new(vec![Lane { label: "crm".into(), points: vec![], spans: vec![span] }], &TimeZone::UTC);
        assert!(timeline.render().unwrap().contains("breaker open, 60.0 s"));
        assert_eq!(timeline.bars[0].width, WIDTH - LEFT - 30);
    }

    #[test]
    fn nothing_at_all_is_drawn_as_nothing() {
        let html = Timeline::new(vec![], &TimeZone::UTC).render().unwrap();
        assert!(html.contains("0 lanes, 0 points"), "{html}");
    }

    #[test]
    fn long_name_stays_within_its_place() {
        assert_eq!(shortened(&"x".repeat(10_000)).chars().count(), NAME_MAX);
    }
}
