SELECT kind, subject, phase, since, clear_since, changes, notified, detail, acknowledged_by, snoozed_until, severity, began FROM alert
