DELETE FROM key_index WHERE run NOT IN (SELECT run FROM key_run);
DELETE FROM key_page WHERE (id >> 32) NOT IN (SELECT run FROM key_run);
