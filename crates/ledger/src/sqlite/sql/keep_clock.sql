INSERT INTO ledger_clock (id, time, boot, elapsed_ms, allowance_ms, uncounted_ms, ahead_ms, scheduled, scheduled_at_boot)
VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO UPDATE
   SET time = excluded.time, boot = excluded.boot, elapsed_ms = excluded.elapsed_ms, allowance_ms = excluded.allowance_ms,
       uncounted_ms = excluded.uncounted_ms, ahead_ms = excluded.ahead_ms, scheduled = excluded.scheduled,
       scheduled_at_boot = excluded.scheduled_at_boot
