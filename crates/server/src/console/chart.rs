//! Charts: series of the history as SVG, with the finding in words and the numbers as a table.

use std::ops::Add;

use askama::Template;
use jiff::tz::TimeZone;
use sluice_domain::history::Step;
use sluice_domain::time::Time;

use crate::operate::views::{HistoryView, PointView, SeriesView};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 176.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;
/// Marks of one chart, the newest ones.
const MARKS_MAX: usize = 12;

/// Time that charts show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Hour,
    Day,
    Week,
    Quarter,
}

impl Window {
    pub(super) const ALL: [Window; 4] = [Window::Hour, Window::Day, Window::Week, Window::Quarter];

    /// Empty means an hour.
    pub(super) fn parse(word: &str) -> Option<Window> {
        if word.is_empty() {
            return Some(Window::Hour);
        }
        Window::ALL.into_iter().find(|window| window.as_str() == word)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Window::Hour => "1h",
            Window::Day => "24h",
            Window::Week => "7d",
            Window::Quarter => "90d",
        }
    }

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Window::Hour => "last hour",
            Window::Day => "last 24 hours",
            Window::Week => "last 7 days",
            Window::Quarter => "last 90 days",
        }
    }

    /// One interval.
    fn step_in_words(self) -> &'static str {
        match self {
            Window::Hour => "minute",
            Window::Day | Window::Week => "hour",
            Window::Quarter => "day",
        }
    }

    /// Length of one interval.
    pub(super) fn step(self) -> Step {
        match self {
            Window::Hour => Step::Minute,
            Window::Day | Window::Week => Step::Hour,
            Window::Quarter => Step::Day,
        }
    }

    fn steps(self) -> i64 {
        match self {
            Window::Hour => 60,
            Window::Day => 24,
            Window::Week => 168,
            Window::Quarter => 90,
        }
    }

    fn time_format(self) -> &'static str {
        match self {
            Window::Hour | Window::Day => "%H:%M",
            Window::Week => "%d %b %H:%M",
            Window::Quarter => "%d %b",
        }
    }
}

/// The intervals of a chart.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub window: Window,
    zone: TimeZone,
    start: Time,
}

impl Axis {
    pub(super) fn new(window: Window, now: Time, zone: TimeZone) -> Axis {
        let length = window.step().length();
        let mut start = window.step().start(now);
        for _ in 0..window.steps() {
            start = start - length;
        }
        Axis { window, zone, start }
    }

    pub(super) fn start(&self) -> Time {
        self.start
    }

    fn count(&self) -> usize {
        self.window.steps() as usize + 1
    }

    fn step_ms(&self) -> i64 {
        self.window.step().length().as_millis() as i64
    }

    fn place(&self, at: &str) -> Option<usize> {
        let place = (Time::parse(at)?.0 - self.start.0).div_euclid(self.step_ms());
        usize::try_from(place).ok().filter(|place| *place < self.count())
    }

    fn label(&self, place: usize) -> String {
        let at = Time(self.start.0 + place as i64 * self.step_ms());
        at.to_jiff().to_zoned(self.zone.clone()).strftime(self.window.time_format()).to_string()
    }

    /// Horizontal position of an instant; `None` outside the chart.
    fn x_of(&self, at: Time) -> Option<f64> {
        let span = (self.count() as i64 * self.step_ms()) as f64;
        let share = (at.0 - self.start.0) as f64 / span;
        (0.0..=1.0).contains(&share).then(|| LEFT + share * plot_width())
    }
}

fn plot_width() -> f64 {
    WIDTH - LEFT - RIGHT
}

fn plot_height() -> f64 {
    HEIGHT - TOP - BOTTOM
}

/// One series: a value for each interval, `None` where nothing is known.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub label: String,
    /// State that gives it its colour.
    pub state: &'static str,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Counts, on top of each other.
    Bars,
    /// Levels and durations, beside each other.
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Seconds,
    /// State of a circuit breaker: 0 closed, 1 half-open, 2 open.
    Breaker,
}

impl Unit {
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Unit::Breaker if value >= 2.0 => "open".to_owned(),
            Unit::Breaker if value >= 1.0 => "half-open".to_owned(),
            Unit::Breaker => "closed".to_owned(),
            Unit::Count => format!("{value:.0}"),
            Unit::Seconds if value >= 100.0 => format!("{value:.0} s"),
            Unit::Seconds if value >= 1.0 => format!("{value:.1} s"),
            Unit::Seconds if value > 0.0 => format!("{:.0} ms", (value * 1_000.0).max(1.0)),
            Unit::Seconds => "0".to_owned(),
        }
    }
}

/// An instant worth knowing: a revision was activated, something was paused.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// RFC 3339.
    pub at: String,
    pub label: String,
}

#[derive(Clone, Debug, Template)]
#[template(path = "console/chart.html")]
pub(super) struct Chart {
    pub title: String,
    pub finding: String,
    legend: Vec<Legend>,
    paths: Vec<Drawn>,
    buckets: Vec<Bucket>,
    marks: Vec<Mark>,
    ticks: Vec<Tick>,
    times: Vec<TimeLabel>,
    rows: Vec<(String, Vec<String>)>,
    is_lines: bool,
}

#[derive(Clone, Debug)]
struct Legend {
    label: String,
    state: &'static str,
    dash: &'static str,
    value: String,
}

#[derive(Clone, Debug)]
struct Drawn {
    state: &'static str,
    dash: &'static str,
    path: String,
}

#[derive(Clone, Debug)]
struct Bucket {
    x: String,
    width: String,
    label: String,
}

#[derive(Clone, Debug)]
struct Mark {
    x: String,
    label: String,
}

#[derive(Clone, Debug)]
struct Tick {
    y: String,
    text_y: String,
    label: String,
}

#[derive(Clone, Debug)]
struct TimeLabel {
    x: String,
    anchor: &'static str,
    label: String,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub title: &'static str,
    pub shape: Shape,
    pub unit: Unit,
    /// The last one is drawn on top.
    pub series: Vec<Data>,
}

impl Chart {
    pub(super) fn new(axis: &Axis, picture: &Picture, moments: &[Moment]) -> Chart {
        let (series, unit) = (&picture.series, picture.unit);
        let top = nice(highest(picture, axis.count()), unit);
        let is_lines = picture.shape == Shape::Lines;
        let paths = series.iter().enumerate().map(|(place, data)| Drawn {
            state: data.state,
            dash: if is_lines { dash(place) } else { "" },
            path: match picture.shape {
                Shape::Bars => bars(axis, &series[..place], data, top),
                Shape::Lines => line(axis, data, top),
            },
        });
        let legend = series.iter().enumerate().rev().map(|(place, data)| Legend {
            label: data.label.clone(),
            state: data.state,
            dash: if is_lines { dash(place) } else { "" },
            value: summary(picture.shape, unit, data),
        });
        Chart {
            title: match picture.shape {
                // What one bar counts.
                Shape::Bars => format!("{} per {}", picture.title, axis.window.step_in_words()),
                Shape::Lines => picture.title.to_owned(),
            },
            finding: finding(axis, picture),
            legend: legend.collect(),
            paths: paths.collect(),
            buckets: buckets(axis, picture),
            marks: marks(axis, moments),
            ticks: ticks(top, unit),
            times: times(axis),
            rows: rows(axis, picture),
            is_lines,
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn dash(place: usize) -> &'static str {
    ["", "6 3", "2 3", "8 3 2 3", "1 2"].get(place).copied().unwrap_or_default()
}

fn known(data: &Data) -> impl Iterator<Item = f64> + '_ {
    data.values.iter().flatten().copied()
}

fn total(data: &Data) -> f64 {
    known(data).fold(0.0, f64::add)
}

fn highest(picture: &Picture, count: usize) -> f64 {
    match picture.shape {
        Shape::Lines => picture.series.iter().flat_map(known).fold(0.0, f64::max),
        Shape::Bars => {
            let stack =
                |place: usize| picture.series.iter().filter_map(|data| *data.values.get(place)?).fold(0.0, f64::add);
            (0..count).map(stack).fold(0.0, f64::max)
        }
    }
}

/// The end of an axis that has room for a value, such as 1, 2, 4 or 10.
fn nice(value: f64, unit: Unit) -> f64 {
    if unit == Unit::Breaker {
        return 2.0;
    }
    let least = if unit == Unit::Count { 1.0 } else { 0.001 };
    let mut power = least;
    while power * 10.0 < value {
        power *= 10.0;
    }
    [1.0, 2.0, 4.0, 10.0].into_iter().map(|part| part * power).find(|end| *end >= value).unwrap_or(power * 10.0)
}

fn y_of(value: f64, top: f64) -> f64 {
    TOP + plot_height() * (1.0 - (value / top).clamp(0.0, 1.0))
}

fn bars(axis: &Axis, below: &[Data], data: &Data, top: f64) -> String {
    let slot = plot_width() / axis.count() as f64;
    let width = (slot * 0.8).max(1.0);
    let mut path = String::new();
    for (place, value) in data.values.iter().enumerate() {
        let Some(value) = value.filter(|value| *value > 0.0) else { continue };
        let base = below.iter().filter_map(|data| *data.values.get(place)?).fold(0.0, f64::add);
        let (y0, y1) = (y_of(base, top), y_of(base + value, top));
        // What happened once is seen beside what happened a thousand times.
        let height = (y0 - y1).max(1.0);
        let x = LEFT + slot * place as f64 + (slot - width) / 2.0;
        path.push_str(&format!("M{x:.1} {y0:.1}v-{height:.1}h{width:.1}v{height:.1}z"));
    }
    path
}

fn line(axis: &Axis, data: &Data, top: f64) -> String {
    let slot = plot_width() / axis.count() as f64;
    let mut path = String::new();
    let mut is_joined = false;
    for (place, value) in data.values.iter().enumerate() {
        let Some(value) = value else {
            is_joined = false;
            continue;
        };
        let (x, y) = (LEFT + slot * (place as f64 + 0.5), y_of(*value, top));
        // A point alone is a short stroke.
        path.push_str(&match is_joined {
            true => format!("L{x:.1} {y:.1}"),
            false => format!("M{:.1} {y:.1}L{:.1} {y:.1}", x - 2.0, x + 2.0),
        });
        is_joined = true;
    }
    path
}

fn summary(shape: Shape, unit: Unit, data: &Data) -> String {
    match shape {
        Shape::Bars => unit.text(total(data)),
        Shape::Lines => known(data).last().map_or_else(|| "no data".to_owned(), |last| unit.text(last)),
    }
}

/// What the chart says, in one sentence.
fn finding(axis: &Axis, picture: &Picture) -> String {
    let window = axis.window.in_words();
    if picture.series.iter().all(|data| known(data).next().is_none()) {
        return format!("{window}: nothing was recorded");
    }
    let parts: Vec<String> = match picture.shape {
        Shape::Bars => {
            picture.series.iter().map(|data| format!("{} {}", picture.unit.text(total(data)), data.label)).collect()
        }
        Shape::Lines => picture
            .series
            .iter()
            .filter_map(|data| {
                let (place, most) =
                    data.values.iter().enumerate().filter_map(|(place, value)| Some((place, (*value)?))).fold(
                        None,
                        |most: Option<(usize, f64)>, (place, value)| match most {
                            Some((_, known)) if known >= value => most,
                            _ => Some((place, value)),
                        },
                    )?;
                let bound = if picture.unit == Unit::Breaker { "at worst" } else { "at most" };
                Some(format!("{} {bound} {} ({})", data.label, picture.unit.text(most), axis.label(place)))
            })
            .collect(),
    };
    format!("{window}: {}", parts.join(", "))
}

fn values_at(picture: &Picture, place: usize) -> Vec<Option<f64>> {
    picture.series.iter().map(|data| data.values.get(place).copied().flatten()).collect()
}

fn is_worth_saying(picture: &Picture, values: &[Option<f64>]) -> bool {
    match picture.shape {
        Shape::Bars => values.iter().flatten().any(|value| *value > 0.0),
        Shape::Lines => values.iter().any(Option::is_some),
    }
}

fn buckets(axis: &Axis, picture: &Picture) -> Vec<Bucket> {
    let slot = plot_width() / axis.count() as f64;
    let bucket = |place: usize| {
        let values = values_at(picture, place);
        is_worth_saying(picture, &values).then(|| {
            let parts = picture
                .series
                .iter()
                .zip(&values)
                .filter_map(|(data, value)| Some(format!("{} {}", data.label, picture.unit.text((*value)?))));
            Bucket {
                x: format!("{:.1}", LEFT + slot * place as f64),
                width: format!("{slot:.1}"),
                label: format!("{}: {}", axis.label(place), parts.collect::<Vec<_>>().join(", ")),
            }
        })
    };
    (0..axis.count()).filter_map(bucket).collect()
}

fn rows(axis: &Axis, picture: &Picture) -> Vec<(String, Vec<String>)> {
    let row = |place: usize| {
        let values = values_at(picture, place);
        let text = |value: &Option<f64>| value.map_or_else(String::new, |value| picture.unit.text(value));
        is_worth_saying(picture, &values).then(|| (axis.label(place), values.iter().rev().map(text).collect()))
    };
    (0..axis.count()).rev().filter_map(row).collect()
}

fn marks(axis: &Axis, moments: &[Moment]) -> Vec<Mark> {
    let mark = |moment: &Moment| {
        let x = axis.x_of(Time::parse(&moment.at)?)?;
        Some(Mark { x: format!("{x:.1}"), label: moment.label.clone() })
    };
    moments.iter().filter_map(mark).take(MARKS_MAX).collect()
}

fn ticks(top: f64, unit: Unit) -> Vec<Tick> {
    let values = if unit == Unit::Count && top < 2.0 { vec![0.0, top] } else { vec![0.0, top / 2.0, top] };
    let tick = |value: f64| {
        let y = y_of(value, top);
        Tick { y: format!("{y:.1}"), text_y: format!("{:.1}", y + 4.0), label: unit.text(value) }
    };
    values.into_iter().map(tick).collect()
}

fn times(axis: &Axis) -> Vec<TimeLabel> {
    let last = axis.count() - 1;
    let label = |place: usize, anchor| TimeLabel {
        x: format!("{:.1}", LEFT + plot_width() * place as f64 / last as f64),
        anchor,
        label: axis.label(place),
    };
    vec![label(0, "start"), label(last / 2, "middle"), label(last, "end")]
}

/// Sums of the counters whose labels match. An interval without a value counts as zero.
pub(super) fn counts(view: &HistoryView, axis: &Axis, matches: impl Fn(&SeriesView) -> bool) -> Vec<Option<f64>> {
    let mut values = vec![Some(0.0); axis.count()];
    for series in view.series.iter().filter(|series| matches(series)) {
        for point in &series.points {
            if let Some(value) = axis.place(&point.at).and_then(|place| values[place].as_mut()) {
                *value += point.count.unwrap_or_default() as f64;
            }
        }
    }
    if view.series.iter().any(matches) { values } else { vec![None; axis.count()] }
}

/// A number of each interval of the series whose labels match: a percentile, or a level, which are added up.
pub(super) fn levels(
    view: &HistoryView,
    axis: &Axis,
    matches: impl Fn(&SeriesView) -> bool,
    number: impl Fn(&PointView) -> Option<f64>,
) -> Vec<Option<f64>> {
    let mut values: Vec<Option<f64>> = vec![None; axis.count()];
    for point in view.series.iter().filter(|series| matches(series)).flat_map(|series| &series.points) {
        if let (Some(place), Some(number)) = (axis.place(&point.at), number(point)) {
            values[place] = Some(values[place].unwrap_or_default() + number);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-17T10:00:30Z";

    fn axis(window: Window) -> Axis {
        Axis::new(window, Time::parse(NOW).unwrap(), TimeZone::UTC)
    }

    fn view(points: &[(&str, u64)]) -> HistoryView {
        let point =
            |(at, count): &(&str, u64)| PointView { at: (*at).to_owned(), count: Some(*count), ..PointView::default() };
        let series = SeriesView { labels: Default::default(), points: points.iter().map(point).collect() };
        HistoryView {
            measure: "accepted".into(),
            kind: "counter".into(),
            step: "minute".into(),
            step_seconds: 60,
            since: String::new(),
            until: String::new(),
            series: vec![series],
        }
    }

    fn picture(shape: Shape, values: Vec<Option<f64>>) -> Picture {
        let unit = if shape == Shape::Bars { Unit::Count } else { Unit::Seconds };
        let series = vec![Data { label: "accepted".into(), state: "running", values }];
        Picture { title: "Requests", shape, unit, series }
    }

    #[test]
    fn counts_fall_into_their_intervals_and_the_rest_is_zero() {
        let axis = axis(Window::Hour);
        let values = counts(&view(&[("2026-11-17T09:00:00Z", 3), ("2026-11-17T10:00:00Z", 4)]), &axis, |_| true);
        assert_eq!((values.len(), values[0], values[1], values[60]), (61, Some(3.0), Some(0.0), Some(4.0)));
        let outside = counts(&view(&[("2026-11-17T08:59:00Z", 3), ("nonsense", 1)]), &axis, |_| true);
        assert!(outside.iter().all(|value| *value == Some(0.0)));
        assert!(counts(&view(&[]), &axis, |_| false).iter().all(Option::is_none));
    }

    #[test]
    fn finding_and_table_say_what_the_bars_show() {
        let axis = axis(Window::Hour);
        let values = counts(&view(&[("2026-11-17T09:30:00Z", 3), ("2026-11-17T09:45:00Z", 9)]), &axis, |_| true);
        let html = Chart::new(&axis, &picture(Shape::Bars, values), &[]).render().unwrap();
        assert!(html.contains("last hour: 12 accepted") && html.contains("Requests per minute"), "{html}");
        assert!(html.contains("<th scope=\"row\">09:45</th><td>9</td>"), "{html}");
        assert!(!html.contains("<th scope=\"row\">09:46</th>"), "intervals without anything are left out");
        assert!(!html.contains("style="));
    }

    #[test]
    fn gap_stays_a_gap_in_a_line() {
        let axis = axis(Window::Day);
        let mut values = vec![None; 25];
        (values[3], values[4], values[9]) = (Some(0.2), Some(0.4), Some(2.5));
        let drawn = line(&axis, &picture(Shape::Lines, values.clone()).series[0], 4.0);
        assert_eq!((drawn.matches('M').count(), drawn.matches('L').count()), (2, 3));
        let chart = Chart::new(&axis, &picture(Shape::Lines, values), &[]);
        assert!(chart.finding.contains("at most 2.5 s (19:00)"), "{}", chart.finding);
    }

    #[test]
    fn labels_are_in_the_zone_of_the_reader() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let axis = Axis::new(Window::Hour, Time::parse(NOW).unwrap(), zone);
        assert_eq!((axis.label(0).as_str(), axis.label(60).as_str()), ("10:00", "11:00"));
    }

    #[test]
    fn nothing_recorded_is_said_and_not_drawn() {
        let chart = Chart::new(&axis(Window::Week), &picture(Shape::Bars, vec![None; 169]), &[]);
        assert!(chart.is_empty() && chart.finding.contains("nothing was recorded"));
        assert!(chart.render().unwrap().contains("Nothing was recorded in this time."));
    }

    #[test]
    fn marks_outside_the_time_are_left_out() {
        let moment = |at: &str| Moment { at: at.into(), label: "revision <x>".into() };
        let moments = [moment("2026-11-17T09:30:00Z"), moment("2026-11-16T09:30:00Z"), moment("never")];
        let chart = Chart::new(&axis(Window::Hour), &picture(Shape::Bars, vec![Some(1.0); 61]), &moments);
        assert_eq!(chart.marks.len(), 1);
        assert!(!chart.render().unwrap().contains("<x>"));
    }

    #[test]
    fn axis_ends_at_a_round_number() {
        let ends = [(0.0, 1.0), (3.0, 4.0), (11.0, 20.0), (400.0, 400.0), (401.0, 1_000.0)];
        for (value, end) in ends {
            assert_eq!(nice(value, Unit::Count), end, "{value}");
        }
    }
}
