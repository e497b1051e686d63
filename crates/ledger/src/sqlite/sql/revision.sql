SELECT files FROM revision WHERE hash = ?1
