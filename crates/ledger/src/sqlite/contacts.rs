//! Consent, suppression and safe mode.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use sluice_domain::key::KeyDigest;
use sluice_domain::policy::ContactFacts;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::caps::contact_digest;
use super::read_pool::Reader;
use super::row::place;
use crate::filter::Page;
use crate::op::{SetConsent, SetSafeMode, Suppress, Unsuppress};
use crate::record::{SafeModeRecord, SuppressionRecord, describe_contacts};

impl Batch<'_, '_> {
    pub(super) fn upsert_consent(&mut self, consent: &SetConsent) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/set_consent.sql"))?.execute(params![
            contact_digest(self.key_store, consent.contact),
            consent.purpose.as_ref(),
            consent.granted,
            consent.at.0
        ])?;
        Ok(())
    }

    pub(super) fn insert_suppressions(&mut self, suppress: &Suppress) -> rusqlite::Result<u64> {
        let Suppress { contacts, channel, actor, reason, at } = suppress;
        let mut changed = 0;
        for (contact, label) in contacts {
            let contact = contact_digest(self.key_store, *contact);
            let known: Option<i64> = self
                .cached(include_str!("sql/suppression_id.sql"))?
                .query_row(params![contact, channel], |row| row.get(0))
                .optional()?;
            let id = match known {
                Some(id) => id,
                None => {
                    changed += 1;
                    self.cached(include_str!("sql/insert_suppression.sql"))?
                        .query_row(params![contact, channel, at.0, actor, reason], |row| row.get(0))?
                }
            };
            let tenant = self.key_store.tenant(&self.key_changes);
            let sealed = tenant.seal(place::suppression_label(id), &[label.as_bytes()]);
            self.cached(include_str!("sql/label_suppression.sql"))?
                .execute(params![id, at.0, actor, reason, sealed])?;
        }
        self.is_change = true;
        self.log(*at, actor, "suppress", &describe_contacts(contacts.len(), channel), reason)?;
        Ok(changed)
    }

    pub(super) fn delete_suppressions(&mut self, unsuppress: &Unsuppress) -> rusqlite::Result<u64> {
        let mut changed = 0;
        for contact in &unsuppress.contacts {
            let deleted = self
                .cached(include_str!("sql/delete_suppression.sql"))?
                .execute(params![contact_digest(self.key_store, *contact), unsuppress.channel])?;
            changed += deleted as u64;
        }
        let object = describe_contacts(unsuppress.contacts.len(), &unsuppress.channel);
        self.is_change = true;
        self.log(unsuppress.at, &unsuppress.actor, "release", &object, &unsuppress.reason)?;
        Ok(changed)
    }

    pub(super) fn write_safe_mode(&mut self, set: &SetSafeMode) -> rusqlite::Result<()> {
        let worker = set.worker.as_deref().unwrap_or_default();
        self.is_change = true;
        let object = set.worker.as_deref().map_or("all".to_owned(), |worker| format!("worker:{worker}"));
        match set.until {
            Some(until) => {
                self.cached(include_str!("sql/upsert_safe_mode.sql"))?
                    .execute(params![worker, set.at.0, until.0, set.actor, set.reason])?;
                let detail = format!("until {until}: {}", set.reason);
                self.log(set.at, &set.actor, "safe-mode on", &object, &detail)?;
            }
            None => {
                if self.cached(include_str!("sql/delete_safe_mode.sql"))?.execute([worker])? > 0 {
                    self.log(set.at, &set.actor, "safe-mode off", &object, &set.reason)?;
                }
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    pub(crate) fn contact_facts(
        &self,
        contact: &KeyDigest,
        channel: &str,
        purposes: &[Arc<str>],
    ) -> rusqlite::Result<ContactFacts> {
        let contact = contact_digest(self.key_store, *contact);
        let mut facts = ContactFacts::default();
        for purpose in purposes {
            let granted: Option<bool> = self
                .prepare_cached(include_str!("sql/consent.sql"))?
                .query_row(params![contact, purpose.as_ref()], |row| row.get(0))
                .optional()?;
            facts.consent.extend(granted.map(|granted| (purpose.clone(), granted)));
        }
        facts.suppressed = self
            .prepare_cached(include_str!("sql/is_suppressed.sql"))?
            .query_row(params![contact, channel], |row| row.get(0))?;
        Ok(facts)
    }

    pub(crate) fn suppressions(&self, page: &Page) -> rusqlite::Result<Vec<SuppressionRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/suppressions.sql"))?;
        let records = statement.query_map(params![page.after, page.limit], |row| {
            let label = self.opened_text(row, 5, place::suppression_label(row.get(0)?))?;
            Ok(SuppressionRecord {
                id: row.get(0)?,
                label,
                channel: row.get(1)?,
                at: Time(row.get(2)?),
                actor: row.get(3)?,
                reason: row.get(4)?,
            })
        })?;
        records.collect()
    }

    pub(crate) fn safe_modes(&self) -> rusqlite::Result<Vec<SafeModeRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/safe_modes.sql"))?;
        let records = statement.query_map([], |row| {
            let worker: String = row.get(0)?;
            Ok(SafeModeRecord {
                worker: (!worker.is_empty()).then_some(worker),
                at: Time(row.get(1)?),
                until: Time(row.get(2)?),
                actor: row.get(3)?,
                reason: row.get(4)?,
            })
        })?;
        records.collect()
    }
}
