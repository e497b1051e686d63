//! Alerts and what operators have marked.

use rusqlite::{OptionalExtension, params};
use sluice_domain::alert::state::{AlertChanges, Phase};
use sluice_domain::alert::{Alert, AlertKind, Severity};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::op::{AlertMark, MarkAlert};

impl Batch<'_, '_> {
    pub(super) fn write_alerts(&mut self, changes: &AlertChanges) -> rusqlite::Result<()> {
        let mut delete = self.cached(include_str!("sql/delete_alert.sql"))?;
        for (kind, subject) in &changes.removed {
            delete.execute(params![kind.name(), subject])?;
        }
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut write = self.cached(include_str!("sql/write_alert.sql"))?;
        for alert in &changes.changed {
            let stored = self
                .cached(include_str!("sql/alert.sql"))?
                .query_row(params![alert.kind.name(), alert.subject], alert_row)
                .optional()?;
            let alert = match stored {
                Some(stored) => alert.clone().with_marks_of(&stored),
                None => alert.clone(),
            };
            write.execute(params![
                alert.kind.name(),
                alert.subject,
                alert.phase.as_str(),
                alert.since.0,
                alert.clear_since.map(|at| at.0),
                count(alert.changes),
                count(alert.notified),
                alert.detail,
                alert.acknowledged_by,
                alert.snoozed_until.map(|until| until.0),
                alert.severity.as_str(),
                alert.began.0
            ])?;
        }
        Ok(())
    }

    pub(super) fn write_alert_mark(&mut self, mark: &MarkAlert) -> rusqlite::Result<bool> {
        let (kind, subject) = (mark.kind.name(), &mark.subject);
        let changed = match mark.mark {
            AlertMark::Acknowledged => {
                self.cached(include_str!("sql/acknowledge_alert.sql"))?.execute(params![kind, subject, mark.actor])?
            }
            AlertMark::SnoozedUntil(until) => {
                self.cached(include_str!("sql/snooze_alert.sql"))?.execute(params![kind, subject, until.0])?
            }
        };
        if changed > 0 {
            self.log(mark.at, &mark.actor, mark.action(), &mark.object(), &mark.reason)?;
        }
        Ok(changed > 0)
    }
}

impl Reader<'_> {
    pub(crate) fn alerts(&self) -> rusqlite::Result<Vec<Alert>> {
        let mut statement = self.prepare_cached(include_str!("sql/alerts.sql"))?;
        let mut alerts = statement.query_map([], alert_row)?.collect::<rusqlite::Result<Vec<Alert>>>()?;
        alerts.sort_by_key(Alert::key);
        Ok(alerts)
    }
}

fn alert_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Alert> {
    let kind: String = row.get(0)?;
    let phase: String = row.get(2)?;
    let severity: String = row.get(10)?;
    Ok(Alert {
        kind: AlertKind::parse(&kind).ok_or_else(|| wrong(0, "unknown kind of alert"))?,
        subject: row.get(1)?,
        phase: Phase::parse(&phase).ok_or_else(|| wrong(2, "unknown phase of an alert"))?,
        since: Time(row.get(3)?),
        clear_since: row.get::<_, Option<i64>>(4)?.map(Time),
        changes: row.get::<_, i64>(5)?.unsigned_abs(),
        notified: row.get::<_, i64>(6)?.unsigned_abs(),
        detail: row.get(7)?,
        acknowledged_by: row.get(8)?,
        snoozed_until: row.get::<_, Option<i64>>(9)?.map(Time),
        severity: Severity::parse(&severity).ok_or_else(|| wrong(10, "unknown severity of an alert"))?,
        began: Time(row.get(11)?),
    })
}
