INSERT INTO contact_write (contact, slot, sealed) VALUES (?1, ?2, ?3) ON CONFLICT (contact, slot) DO UPDATE SET sealed = excluded.sealed
