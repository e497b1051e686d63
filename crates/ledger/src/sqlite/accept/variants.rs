//! Other contents under the key of an event.

use rusqlite::params;

use super::super::batch::Batch;
use super::super::row::place;
use super::insert::seal_body;
use super::{KeyedEvent, Owner};

/// Variants of an event that are stored; further ones are counted.
const VARIANTS_MAX: i64 = 8;

impl Batch<'_, '_> {
    /// The slot of this content among the variants of an event, or else the number of variants.
    fn variant_slot(&self, event: &KeyedEvent<'_>, first: &Owner) -> rusqlite::Result<Result<i64, i64>> {
        let mut statement = self.cached(include_str!("../sql/variant_slots.sql"))?;
        let mut rows = statement.query([first.seq])?;
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            if row.get::<_, [u8; 16]>(1)? == event.fingerprint {
                return Ok(Ok(row.get(0)?));
            }
            taken += 1;
        }
        Ok(Err(taken))
    }

    pub(super) fn keep_variant(
        &mut self,
        event: &KeyedEvent<'_>,
        first: &Owner,
        became: Option<i64>,
    ) -> rusqlite::Result<()> {
        let taken = match self.variant_slot(event, first)? {
            Ok(slot) => {
                self.cached(include_str!("../sql/repeat_variant.sql"))?.execute([first.seq, slot])?;
                return Ok(());
            }
            Err(taken) if taken >= VARIANTS_MAX => {
                self.cached(include_str!("../sql/further_variant.sql"))?.execute([first.seq, VARIANTS_MAX - 1])?;
                return Ok(());
            }
            Err(taken) => taken,
        };
        let sealed = match became {
            Some(_) => None,
            None => {
                let sealer = self.person_sealer(event.contact)?.sealer;
                Some(seal_body(&sealer, place::variant(first.seq, first.id, &taken.to_be_bytes()), &event.body))
            }
        };
        self.cached(include_str!("../sql/insert_variant.sql"))?.execute(params![
            first.seq,
            taken,
            event.received_at.0,
            event.fingerprint,
            became,
            sealed
        ])?;
        Ok(())
    }

    pub(super) fn count_variant(&mut self, event: &KeyedEvent<'_>, first: &Owner) -> rusqlite::Result<()> {
        if let Ok(slot) = self.variant_slot(event, first)? {
            self.cached(include_str!("../sql/repeat_variant.sql"))?.execute([first.seq, slot])?;
        }
        Ok(())
    }
}
