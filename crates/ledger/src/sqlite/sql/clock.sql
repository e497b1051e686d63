SELECT time, boot, elapsed_ms, allowance_ms, uncounted_ms, ahead_ms FROM ledger_clock
