INSERT INTO import (id, flow, file, rows, position, accepted, duplicates, quarantined, refused, state, actor, reason, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, 0, 0, 0, 0, 0, 'running', ?5, ?6, ?7, ?7)
