SELECT seq, tries FROM identity_lookup WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2
