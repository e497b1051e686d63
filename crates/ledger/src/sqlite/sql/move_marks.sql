UPDATE mark SET owner = ?2 WHERE owner = ?1 AND job = ?3
