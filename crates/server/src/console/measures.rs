//! Charts of the node, of a source, of a destination and of the workers, from the history that the ledger keeps.

use super::chart::{Axis, Chart, Data, Moment, Picture, Shape, Unit, counts, levels};
use super::page::Block;
use super::visit::{Failure, Visit};
use crate::operate::SeriesRequest;
use crate::operate::views::{HistoryView, PointView, SeriesView};

/// Activations that are looked at for marks.
const REVISIONS_LOOKED_AT: u32 = 50;
/// Series of a chart; the ones beyond it share the last one.
const SERIES_MAX: usize = 5;
const COLOURS: [&str; SERIES_MAX] = ["running", "noop", "retrying", "unknown", "dead"];

/// Charts of one time, all with the same marks.
pub(super) struct Charts<'a> {
    visit: &'a Visit,
    axis: Axis,
    moments: Vec<Moment>,
    charts: Vec<Chart>,
}

impl<'a> Charts<'a> {
    /// For the window that the address names.
    pub(super) async fn begin(visit: &'a Visit) -> Result<Charts<'a>, Failure> {
        let axis = visit.axis()?;
        let revisions = visit.operator.configured(None, REVISIONS_LOOKED_AT).await?.items.into_iter();
        let revisions = revisions.map(|revision| Moment {
            at: revision.at,
            label: format!("revision {} activated by {}: {}", revision.revision, revision.actor, revision.reason),
        });
        let pauses = visit.operator.pauses().await?.into_iter().map(|pause| Moment {
            at: pause.at,
            label: format!("{} paused by {}: {}", pause.target, pause.actor, pause.reason),
        });
        Ok(Charts { visit, axis, moments: pauses.chain(revisions).collect(), charts: vec![] })
    }

    /// The charts, under the choice of their time.
    pub(super) fn end(self) -> Vec<Block> {
        vec![Block::Windows(self.visit.windows(self.axis.window)), Block::Charts(self.charts)]
    }

    async fn read(&self, measure: &str, by: &str) -> Result<HistoryView, Failure> {
        let request = SeriesRequest {
            measure: measure.to_owned(),
            by: by.to_owned(),
            step: Some(self.axis.window.step().as_str().to_owned()),
            since: self.axis.start(),
            until: None,
        };
        Ok(self.visit.operator.series(&request).await?)
    }

    fn draw(&mut self, title: &'static str, shape: Shape, unit: Unit, series: Vec<Data>) {
        let picture = Picture { title, shape, unit, series };
        self.charts.push(Chart::new(&self.axis, &picture, &self.moments));
    }

    /// Requests of all sources, or of one.
    pub(super) async fn requests(&mut self, source: Option<&str>) -> Result<(), Failure> {
        let is_ours = |series: &SeriesView| is(series, "source", source);
        let accepted = counts(&self.read("accepted", "source").await?, &self.axis, is_ours);
        let duplicates = counts(&self.read("duplicates", "source").await?, &self.axis, is_ours);
        let refused = counts(&self.read("refused", "source").await?, &self.axis, is_ours);
        let data = vec![
            Data { label: "accepted".into(), state: "running", values: accepted },
            Data { label: "duplicates".into(), state: "noop", values: duplicates },
            Data { label: "rejected".into(), state: "dead", values: refused },
        ];
        self.draw("Requests", Shape::Bars, Unit::Count, data);
        Ok(())
    }

    /// Rejected requests of a source by their code, the most frequent ones.
    pub(super) async fn refusals(&mut self, source: &str) -> Result<(), Failure> {
        let view = self.read("refused", "source,code").await?;
        let series: Vec<&SeriesView> = view.series.iter().filter(|series| is(series, "source", Some(source))).collect();
        let mut sums: Vec<(String, u64)> = vec![];
        for one in series {
            let code = one.labels.get("code").cloned().unwrap_or_default();
            sums.push((code, one.points.iter().filter_map(|point| point.count).sum()));
        }
        sums.sort_by_key(|(_, sum)| *sum);
        let first = sums.len().saturating_sub(SERIES_MAX);
        let data = sums[first..].iter().zip(COLOURS).map(|((code, _), state)| {
            let values = counts(&view, &self.axis, |series| {
                is(series, "source", Some(source)) && is(series, "code", Some(code))
            });
            Data { label: code.clone(), state, values }
        });
        let data = data.collect();
        self.draw("Rejected requests, by code", Shape::Bars, Unit::Count, data);
        Ok(())
    }

    /// Jobs of all workers that ended, replayed ones too.
    pub(super) async fn ended_jobs(&mut self) -> Result<(), Failure> {
        let (first, replayed) = (self.read("jobs", "state").await?, self.read("replayed_jobs", "state").await?);
        let data = ["succeeded", "noop", "dropped", "unknown", "dead"].map(|state| {
            let matches = |series: &SeriesView| is(series, "state", Some(state));
            let values = sum(counts(&first, &self.axis, matches), counts(&replayed, &self.axis, matches));
            Data { label: state.to_owned(), state, values }
        });
        self.draw("Jobs that ended", Shape::Bars, Unit::Count, data.to_vec());
        Ok(())
    }

    /// Calls of all destinations, or of one, by what came of them.
    pub(super) async fn calls(&mut self, destination: Option<&str>) -> Result<(), Failure> {
        let view = self.read("attempts", "destination,outcome").await?;
        let data = [
            ("done", "succeeded", &["done", "noop"][..]),
            ("retried or held back", "retrying", &["retry", "wait"]),
            ("unsure", "unknown", &["unsure"]),
            ("rejected", "dead", &["reject"]),
        ]
        .map(|(label, state, outcomes)| {
            let matches = |series: &SeriesView| {
                let outcome = series.labels.get("outcome").map_or("", String::as_str);
                is(series, "destination", destination) && outcomes.contains(&outcome)
            };
            Data { label: label.to_owned(), state, values: counts(&view, &self.axis, matches) }
        });
        self.draw("Calls, by outcome", Shape::Bars, Unit::Count, data.to_vec());
        Ok(())
    }

    /// Effects that calls applied, at all destinations or at one.
    pub(super) async fn effects(&mut self, destination: Option<&str>) -> Result<(), Failure> {
        let view = self.read("effects", "destination").await?;
        let values = counts(&view, &self.axis, |series| is(series, "destination", destination));
        let data = vec![Data { label: "effects".into(), state: "succeeded", values }];
        self.draw("Effects applied", Shape::Bars, Unit::Count, data);
        Ok(())
    }

    /// Percentiles of a duration, over everything or for one value of its label.
    pub(super) async fn latency(
        &mut self,
        title: &'static str,
        measure: &str,
        only: Option<(&str, &str)>,
    ) -> Result<(), Failure> {
        let view = self.read(measure, only.map_or("", |(label, _)| label)).await?;
        let matches = |series: &SeriesView| only.is_none_or(|(label, value)| is(series, label, Some(value)));
        let line = |label: &str, state, number: fn(&PointView) -> Option<f64>| Data {
            label: label.to_owned(),
            state,
            values: levels(&view, &self.axis, matches, number),
        };
        let data = vec![
            line("p50", "succeeded", |point| point.p50),
            line("p95", "running", |point| point.p95),
            line("p99", "dead", |point| point.p99),
        ];
        self.draw(title, Shape::Lines, Unit::Seconds, data);
        Ok(())
    }

    /// Dead letters that wait, over all queues.
    pub(super) async fn dead_letters(&mut self) -> Result<(), Failure> {
        let view = self.read("dead_letters", "").await?;
        let values = levels(&view, &self.axis, |_| true, |point| point.max.map(|max| max as f64));
        let data = vec![Data { label: "dead letters".into(), state: "dead", values }];
        self.draw("Dead letters that wait", Shape::Lines, Unit::Count, data);
        Ok(())
    }

    /// Live jobs by state, over all workers.
    pub(super) async fn live_jobs(&mut self) -> Result<(), Failure> {
        let view = self.read("jobs_live", "state").await?;
        let data = ["running", "queued", "waiting", "retrying"].map(|state| {
            let matches = |series: &SeriesView| is(series, "state", Some(state));
            let values = levels(&view, &self.axis, matches, |point| point.last.map(|last| last as f64));
            Data { label: state.to_owned(), state, values }
        });
        self.draw("Live jobs", Shape::Lines, Unit::Count, data.to_vec());
        Ok(())
    }

    /// Breaker of a destination: 0 closed, 1 half-open, 2 open.
    pub(super) async fn breaker(&mut self, destination: &str) -> Result<(), Failure> {
        let view = self.read("breaker", "destination").await?;
        let matches = |series: &SeriesView| is(series, "destination", Some(destination));
        let values = levels(&view, &self.axis, matches, |point| point.max.map(|max| max as f64));
        let data = vec![Data { label: "breaker".into(), state: "dead", values }];
        self.draw("Circuit breaker", Shape::Lines, Unit::Breaker, data);
        Ok(())
    }

    /// Longest time without an event of a source.
    pub(super) async fn quiet(&mut self, source: &str) -> Result<(), Failure> {
        let view = self.read("quiet_seconds", "source").await?;
        let matches = |series: &SeriesView| is(series, "source", Some(source));
        let values = levels(&view, &self.axis, matches, |point| point.max.map(|max| max as f64));
        let data = vec![Data { label: "seconds without an event".into(), state: "queued", values }];
        self.draw("Silence", Shape::Lines, Unit::Seconds, data);
        Ok(())
    }
}

/// Whether a label has a value; every value counts without one.
fn is(series: &SeriesView, label: &str, value: Option<&str>) -> bool {
    value.is_none_or(|value| series.labels.get(label).is_some_and(|known| known == value))
}

fn sum(first: Vec<Option<f64>>, second: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let add = |(first, second): (Option<f64>, Option<f64>)| match (first, second) {
        (None, None) => None,
        (first, second) => Some(first.unwrap_or_default() + second.unwrap_or_default()),
    };
    first.into_iter().zip(second).map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_knows_nothing_only_where_both_know_nothing() {
        assert_eq!(sum(vec![None, Some(1.0), None], vec![None, None, Some(2.0)]), [None, Some(1.0), Some(2.0)]);
    }
}
