DELETE FROM identity_lookup WHERE seq = ?1
