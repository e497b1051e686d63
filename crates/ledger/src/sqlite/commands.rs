//! Commands with an idempotency key.

use rusqlite::{OptionalExtension, params};
use sluice_domain::idempotent_command::{Claim, CommandEntry, CommandResponse, KEPT, RESPONSES_MAX, claim};
use sluice_domain::job::Term;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::place;
use crate::command::{ClaimCommand, FinishCommand};

impl Batch<'_, '_> {
    pub(super) fn claim_command_key(&mut self, wanted: &ClaimCommand) -> rusqlite::Result<Claim> {
        let entry = self.reader().command(wanted)?;
        let claim = claim(entry, &wanted.request, wanted.term);
        if claim == Claim::First {
            // An expired one may still be there.
            self.cached(include_str!("sql/delete_command.sql"))?.execute([wanted.key])?;
            let insert = include_str!("sql/insert_command.sql");
            self.cached(insert)?.execute(params![wanted.key, wanted.request, wanted.term.0, wanted.at.0])?;
        }
        Ok(claim)
    }

    pub(super) fn finish_command_key(&mut self, finish: &FinishCommand) -> rusqlite::Result<()> {
        let Some(response) = &finish.response else {
            self.cached(include_str!("sql/delete_command.sql"))?.execute([finish.key])?;
            return Ok(());
        };
        let found = self.cached(include_str!("sql/command_id.sql"))?.query_row([finish.key], |row| row.get(0));
        let Some(id) = found.optional()? else { return Ok(()) };
        let tenant = self.key_store.tenant(&self.key_changes);
        let body = response.body.as_ref().map(|body| tenant.seal(place::command_body(id), &[body]));
        let update = include_str!("sql/finish_command.sql");
        self.cached(update)?.execute(params![id, response.status, response.content_type, body])?;
        Ok(())
    }

    pub(super) fn prune_commands(&mut self, now: Time, rows_max: u32) -> rusqlite::Result<usize> {
        let before = now - KEPT;
        self.cached(include_str!("sql/delete_commands.sql"))?.execute(params![before.0, RESPONSES_MAX, rows_max])
    }
}

impl Reader<'_> {
    fn command(&self, wanted: &ClaimCommand) -> rusqlite::Result<Option<CommandEntry>> {
        let since = wanted.at - KEPT;
        let entry = |row: &rusqlite::Row<'_>| {
            let response = match row.get::<_, Option<u16>>(3)? {
                Some(status) => {
                    let body = self.opened(row, 5, place::command_body(row.get(0)?))?;
                    Some(CommandResponse { status, content_type: row.get(4)?, body })
                }
                None => None,
            };
            Ok(CommandEntry { request: row.get(1)?, term: Term(row.get(2)?), response })
        };
        self.prepare_cached(include_str!("sql/command.sql"))?.query_row(params![wanted.key, since.0], entry).optional()
    }
}
