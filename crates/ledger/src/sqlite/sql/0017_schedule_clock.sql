-- The time of schedules, which counts observed time alone, and what it was at the last start of the machine. Both by the row's time.
ALTER TABLE ledger_clock ADD COLUMN scheduled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_clock ADD COLUMN scheduled_at_boot INTEGER NOT NULL DEFAULT 0;
UPDATE ledger_clock SET scheduled = time, scheduled_at_boot = time;
