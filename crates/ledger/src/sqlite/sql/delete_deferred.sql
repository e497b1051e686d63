DELETE FROM deferred WHERE id = ?1
