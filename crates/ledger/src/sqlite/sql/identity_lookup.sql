SELECT tries, due_at, last FROM identity_lookup WHERE seq = ?1
