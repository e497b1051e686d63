//! Replays: durable, taken batch by batch.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::job::{EffectState, JobId};
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
use sluice_domain::time::Time;
use sluice_domain::unit::Rate;

use super::batch::Batch;
use super::mac::EffectColumns;
use super::read_pool::Reader;
use super::row::wrong;
use crate::filter::Page;
use crate::op::{AdvanceReplay, ChangedJob, ControlReplay, Controlled, NewReplay, Replay};
use crate::record::{ReplayRecord, audited_replay};

impl Reader<'_> {
    pub(crate) fn replays(&self, page: &Page) -> rusqlite::Result<Vec<ReplayRecord>> {
        self.prepare_cached(include_str!("sql/replays.sql"))?
            .query_map(params![page.after, page.limit], replay_row)?
            .collect()
    }

    pub(crate) fn running_replays(&self) -> rusqlite::Result<Vec<ReplayRecord>> {
        self.prepare_cached(include_str!("sql/running_replays.sql"))?.query_map([], replay_row)?.collect()
    }

    pub(crate) fn replay_record(&self, id: &ReplayId) -> rusqlite::Result<Option<ReplayRecord>> {
        self.prepare_cached(include_str!("sql/replay.sql"))?.query_row([id.0], replay_row).optional()
    }
}

impl Batch<'_, '_> {
    pub(super) fn insert_replay(&mut self, new: &NewReplay) -> rusqlite::Result<ReplayRecord> {
        let json = |value: serde_json::Result<String>| value.expect("plain data has a JSON form");
        let millis = |rate: Rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX);
        let record = self.cached(include_str!("sql/insert_replay.sql"))?.query_row(
            params![
                json(serde_json::to_string(&new.selection)),
                new.actor,
                new.reason,
                new.revision.as_deref(),
                json(serde_json::to_string(&new.reapply)),
                new.rate.map(|rate| rate.count),
                new.rate.map(millis),
                new.batch,
                new.at.0,
                self.counters.next_job - 1
            ],
            replay_row,
        )?;
        self.log(new.at, &new.actor, "replay", &record.id.to_string(), &audited_replay(new))?;
        Ok(record)
    }

    pub(super) fn advance(&mut self, advance: &AdvanceReplay) -> rusqlite::Result<Option<Vec<ChangedJob>>> {
        let found = self.reader().replay_record(&advance.id)?;
        let is_current = |record: &ReplayRecord| record.state == ReplayState::Running && record.after == advance.after;
        let Some(record) = found.filter(is_current) else { return Ok(None) };
        let replay = Replay {
            jobs: advance.jobs.clone(),
            actor: record.actor,
            reason: record.reason,
            revision: record.revision,
            at: advance.at,
        };
        let changed = self.requeue_jobs(&replay, &record.reapply)?;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let skipped = i64::try_from(advance.skipped).unwrap_or(i64::MAX) + count(advance.jobs.len() - changed.len());
        let state = if advance.is_last { ReplayState::Done } else { ReplayState::Running };
        self.cached(include_str!("sql/advance_replay.sql"))?.execute(params![
            advance.id.0,
            advance.until.0,
            count(changed.len()),
            skipped,
            state.as_str(),
            advance.next_at.0,
            advance.at.0
        ])?;
        Ok(Some(changed))
    }

    pub(super) fn control(&mut self, control: &ControlReplay) -> rusqlite::Result<Controlled> {
        let Some(record) = self.reader().replay_record(&control.id)? else { return Ok(Controlled::Unknown) };
        if record.state == control.state {
            return Ok(Controlled::Same(record));
        }
        if !record.state.may_become(control.state) {
            return Ok(Controlled::Refused(record));
        }
        let update = include_str!("sql/control_replay.sql");
        self.cached(update)?.execute(params![control.id.0, control.state.as_str(), control.at.0])?;
        let object = control.id.to_string();
        self.log(control.at, &control.actor, control.action(), &object, &control.reason)?;
        Ok(Controlled::Changed(ReplayRecord { state: control.state, updated_at: control.at, ..record }))
    }

    /// The effects that are applied again make room for others.
    pub(super) fn supersede_effects(&mut self, job: JobId, reapply: &Reapply, at: Time) -> rusqlite::Result<()> {
        let applied: Vec<EffectColumns> = self
            .cached(include_str!("sql/applied_effects.sql"))?
            .query_map([job.0], EffectColumns::read)?
            .collect::<rusqlite::Result<_>>()?;
        for effect in applied {
            let class = EffectClass::parse(&effect.class);
            if class.is_some_and(|class| reapply.supersedes(class, EffectState::Applied)) {
                let state = EffectState::Superseded.as_str().to_owned();
                self.write_effect(&EffectColumns { state, last_at: at.0, ..effect })?;
            }
        }
        Ok(())
    }
}

fn replay_row(row: &Row<'_>) -> rusqlite::Result<ReplayRecord> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let rate = match (row.get::<_, Option<u32>>(6)?, row.get::<_, Option<i64>>(7)?) {
        (Some(count), Some(millis)) => Some(Rate { count, per: Duration::from_millis(millis.unsigned_abs()) }),
        _ => None,
    };
    let unreadable = |column: usize| move |error: serde_json::Error| wrong(column, &error.to_string());
    Ok(ReplayRecord {
        id: ReplayId(row.get(0)?),
        selection: serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(unreadable(1))?,
        actor: row.get(2)?,
        reason: row.get(3)?,
        revision: row.get(4)?,
        reapply: serde_json::from_str(row.get_ref(5)?.as_str()?).map_err(unreadable(5))?,
        rate,
        batch: row.get(8)?,
        state: ReplayState::parse(row.get_ref(9)?.as_str()?).ok_or_else(|| wrong(9, "unknown state of a replay"))?,
        created_at: Time(row.get(10)?),
        updated_at: Time(row.get(11)?),
        after: JobId(row.get(12)?),
        last_job: JobId(row.get(13)?),
        next_at: Time(row.get(14)?),
        replayed: count(15)?,
        skipped: count(16)?,
    })
}
