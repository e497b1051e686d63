//! Duplicates of a source, and the key lifetime that covers them.

use std::time::Duration;

use sluice_domain::duplicate_stats::DuplicateStats;
use sluice_domain::flow::{Flow, RateLimit};
use sluice_domain::unit::format_duration;
use sluice_domain::verify::preset;

use crate::config::did_you_mean;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{KeyAdvice, LatenessView, LifetimeView, LimitView, MappingWarningView, SourceDetail};

impl Operator {
    pub async fn source(&self, name: &str) -> Result<SourceDetail, OperateError> {
        let mut sources = self.sources().await?;
        let Some(place) = sources.iter().position(|source| source.name == name) else {
            let names = sources.iter().map(|source| source.name.as_str());
            let hint = did_you_mean(name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(OperateError::NotFound(format!("unknown source `{name}`{hint}")));
        };
        let source = sources.swap_remove(place);
        let seen = self.ledger.duplicate_stats(name.to_owned()).await?;
        let live = self.revisions.current();
        let flows: Vec<&Flow> =
            live.config.flows.values().map(AsRef::as_ref).filter(|flow| flow.source == name).collect();
        let keys = advice(&seen, source.accepted, source.duplicates, &flows);
        let limits = flows.iter().flat_map(|flow| limits(flow)).collect();
        let warnings = self.ledger.mapping_warnings(name.to_owned()).await?;
        let mapping_warnings = warnings
            .into_iter()
            .map(|count| MappingWarningView {
                field: count.warning.field,
                code: count.warning.code.as_str().to_owned(),
                count: count.count,
                last_at: count.last_at.to_string(),
            })
            .collect();
        Ok(SourceDetail { source, keys, limits, mapping_warnings })
    }
}

fn advice(seen: &DuplicateStats, accepted: u64, duplicates: u64, flows: &[&Flow]) -> KeyAdvice {
    let text = |duration: Option<Duration>| duration.map(rounded);
    let mut lateness: Vec<LatenessView> = Vec::new();
    for (within, count) in &seen.lateness {
        let within = rounded(*within);
        match lateness.last_mut() {
            Some(last) if last.within == within => last.duplicates += count,
            _ => lateness.push(LatenessView { within, duplicates: *count }),
        }
    }
    KeyAdvice {
        duplicates: seen.duplicates,
        percent_of_requests: percent(duplicates, accepted + duplicates),
        after_expiry: seen.after_expiry,
        lateness,
        p50: text(seen.p50),
        p99: text(seen.p99),
        p999: text(seen.p999),
        lifetime_wanted: seen.suggested_ttl.map(format_duration),
        lifetimes: flows.iter().map(|flow| lifetime(seen, flow)).collect(),
    }
}

fn lifetime(seen: &DuplicateStats, flow: &Flow) -> LifetimeView {
    let ttl = flow.idempotency.ttl;
    let scheme = flow.verify.as_ref().map(|verifier| verifier.scheme());
    let horizon = scheme.and_then(|scheme| preset(scheme).retry_horizon).filter(|horizon| !horizon.is_zero());
    let covered = percent(seen.caught_within(ttl), seen.duplicates);
    let wanted = seen.suggested_ttl.into_iter().chain(horizon).max();
    let enough = wanted.is_none_or(|wanted| ttl >= wanted);
    let lives = format!("key lifetime {}", format_duration(ttl));
    let mut advice = match (covered, seen.suggested_ttl) {
        (Some(covered), Some(suggested)) => {
            let covers = format!("{lives} covers {covered} % of the duplicates");
            if ttl >= suggested {
                format!("{covers}; {} would cover 99.9 %", format_duration(suggested))
            } else {
                format!("{covers}; 99.9 % needs {}", format_duration(suggested))
            }
        }
        _ => format!("{lives}; no duplicates yet"),
    };
    if let Some(horizon) = horizon {
        advice.push_str(&format!("; the sender may repeat an event for {}", format_duration(horizon)));
    }
    if let Some(wanted) = wanted.filter(|_| !enough) {
        advice.push_str(&format!(": set `idempotency.ttl: {}` or more", format_duration(wanted)));
    }
    LifetimeView {
        flow: flow.name.clone(),
        lifetime: format_duration(ttl),
        percent_covered: covered,
        retry_horizon: horizon.map(format_duration),
        enough,
        advice,
    }
}

/// One decimal, rounded down so that only all is 100 %.
fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| (part as f64 * 1000.0 / all as f64).floor() / 10.0)
}

/// Rounded up to two units.
fn rounded(duration: Duration) -> String {
    let seconds = duration.as_millis().div_ceil(1000) as u64;
    let unit = match seconds {
        0..60 => 1,
        60..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    format_duration(Duration::from_secs(seconds.div_ceil(unit) * unit))
}

fn limits(flow: &Flow) -> Vec<LimitView> {
    let view = |secret: Option<&String>, limit: &RateLimit| LimitView {
        flow: flow.name.clone(),
        secret: secret.cloned(),
        rate: format!("{}/{}", limit.rate.count, format_duration(limit.rate.per)),
        burst: limit.burst,
    };
    let own = flow.rate_limit.iter().map(|limit| view(None, limit));
    own.chain(flow.secret_limits.iter().map(|(secret, limit)| view(Some(secret), limit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_bounds_are_never_below_the_value() {
        let text = |millis: u64| rounded(Duration::from_millis(millis));
        assert_eq!([0, 900, 61_001, 3_600_001, 104_857_599].map(text), ["0s", "1s", "1m2s", "1h1m", "1d6h"]);
    }

    #[test]
    fn all_but_one_is_not_a_hundred_percent() {
        assert_eq!(percent(9_999, 10_000), Some(99.9));
        assert_eq!((percent(3, 3), percent(0, 0)), (Some(100.0), None));
    }
}
