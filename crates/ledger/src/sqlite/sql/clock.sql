SELECT time, boot, elapsed_ms, allowance_ms, uncounted_ms, ahead_ms, scheduled, scheduled_at_boot FROM ledger_clock
