INSERT OR REPLACE INTO alert (kind, subject, phase, since, clear_since, changes, notified, detail, acknowledged_by, snoozed_until,
                              severity, began)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
