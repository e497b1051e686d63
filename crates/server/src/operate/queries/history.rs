//! History: series, totals, latencies.

use std::time::Duration;

use sluice_domain::history::measure::{Kind, MEASURES, Measure};
use sluice_domain::history::north_star::{NorthStarRows, NorthStars};
use sluice_domain::history::series::{self, Grouping, HistoryQuery, POINTS_MAX};
use sluice_domain::history::{Step, Value};
use sluice_domain::time::Time;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{CounterView, HistoryView, LatencyView, SeriesView};

/// What a series is asked for by.
#[derive(Clone, Debug)]
pub struct SeriesRequest {
    pub measure: String,
    /// Label names, separated by commas; empty adds everything up.
    pub by: String,
    /// `None` chooses the finest one that has the whole time.
    pub step: Option<String>,
    pub since: Time,
    pub until: Option<Time>,
}

/// Intervals that a request without a step gets at most.
const CHOSEN_POINTS_MAX: u32 = 1_500;

impl Operator {
    /// The ledger's own time, which everything that is stored uses.
    pub fn now(&self) -> Time {
        self.clock.ledger_time()
    }

    pub async fn series(&self, request: &SeriesRequest) -> Result<HistoryView, OperateError> {
        let measure = measure(&request.measure)?;
        let by = Grouping::parse(measure, &request.by).map_err(|name| {
            let labels = measure.spec().labels.join(", ");
            OperateError::Invalid(format!("{} has no label `{name}`; it has {labels}", measure.name()))
        })?;
        let now = self.clock.ledger_time();
        let until = request.until.unwrap_or(now + Step::Minute.length());
        let step = match &request.step {
            Some(word) => Step::parse(word)
                .ok_or_else(|| OperateError::Invalid(format!("`{word}` is not a step; use minute, hour or day")))?,
            None => Step::finest(request.since, now, CHOSEN_POINTS_MAX),
        };
        let since = step.start(request.since);
        let points = until.since(since).as_secs().div_ceil(step.length().as_secs());
        if points > u64::from(POINTS_MAX) {
            let problem = format!("{points} intervals of a {}, at most {POINTS_MAX}; use a longer step", step.as_str());
            return Err(OperateError::Invalid(problem));
        }
        let rows = self.ledger.history(HistoryQuery { measure, step, since, until }).await?;
        let names = by.names(measure);
        Ok(HistoryView {
            measure: measure.name().to_owned(),
            kind: measure.kind().as_str().to_owned(),
            step: step.as_str().to_owned(),
            step_seconds: step.length().as_secs(),
            since: since.to_string(),
            until: until.to_string(),
            series: series::group(&rows, &by).iter().map(|series| SeriesView::new(&names, series)).collect(),
        })
    }

    /// Counters of the ledger since it was created.
    pub async fn counters(&self) -> Result<Vec<CounterView>, OperateError> {
        let view = |total: sluice_ledger::CounterTotal| {
            let values = [total.labels.0.to_string(), total.labels.1.to_string()];
            let labels = total.measure.spec().labels.iter().map(|name| (*name).to_owned()).zip(values);
            CounterView { measure: total.measure.name().to_owned(), labels: labels.collect(), total: total.total }
        };
        Ok(self.ledger.counter_totals().await?.into_iter().map(view).collect())
    }

    /// North stars, as of the last minute that was written.
    pub async fn north_stars(&self) -> Result<NorthStars, OperateError> {
        const DAY: Duration = Duration::from_secs(86_400);
        let now = self.clock.ledger_time();
        let rows = async |measure, window: Duration| {
            let (step, since) = (Step::Hour, Step::Hour.start(now - window));
            self.ledger.history(HistoryQuery { measure, step, since, until: Time::NEVER }).await
        };
        Ok(NorthStars::new(&NorthStarRows {
            effects: rows(Measure::Effects, DAY).await?,
            replayed_jobs: rows(Measure::ReplayedJobs, DAY).await?,
            effect_seconds: rows(Measure::EffectSeconds, DAY).await?,
            accepted: rows(Measure::Accepted, 7 * DAY).await?,
            duplicates: rows(Measure::Duplicates, 7 * DAY).await?,
            signal_seconds: rows(Measure::SignalSeconds, 7 * DAY).await?,
        }))
    }

    /// Latencies of a histogram over the last part of the history, by its first label.
    pub async fn latency(&self, name: &str, window: Duration, percent: f64) -> Result<Vec<LatencyView>, OperateError> {
        let measure = measure(name)?;
        if measure.kind() != Kind::Histogram {
            let known = names(|kind| kind == Kind::Histogram);
            return Err(OperateError::Invalid(format!("{name} is not a duration; use {known}")));
        }
        if !(0.0..=100.0).contains(&percent) {
            return Err(OperateError::Invalid(format!("{percent} is not a percentile between 0 and 100")));
        }
        let now = self.clock.ledger_time();
        let step = Step::finest(now - window, now, CHOSEN_POINTS_MAX);
        let (since, until) = (step.start(now - window), now + Step::Minute.length());
        let rows = self.ledger.history(HistoryQuery { measure, step, since, until }).await?;
        let latency = |(labels, value): (Vec<std::sync::Arc<str>>, Value)| {
            let Value::Histogram(histogram) = value else { return None };
            Some(LatencyView {
                name: labels.first()?.to_string(),
                count: histogram.count(),
                mean: histogram.mean()?.as_secs_f64(),
                percentile: histogram.percentile(percent)?.as_secs_f64(),
            })
        };
        Ok(series::total(&rows, &Grouping::by_all(measure)).into_iter().filter_map(latency).collect())
    }
}

fn measure(name: &str) -> Result<Measure, OperateError> {
    Measure::parse(name)
        .ok_or_else(|| OperateError::Invalid(format!("unknown measure `{name}`; use one of {}", names(|_| true))))
}

fn names(of: impl Fn(Kind) -> bool) -> String {
    let names: Vec<&str> = MEASURES.iter().filter(|spec| of(spec.kind)).map(|spec| spec.name).collect();
    names.join(", ")
}
