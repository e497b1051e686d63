UPDATE import SET position = ?2, accepted = accepted + ?3, duplicates = duplicates + ?4, quarantined = quarantined + ?5, refused = refused + ?6, state = ?7, updated_at = ?8 WHERE id = ?1
