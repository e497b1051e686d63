//! The steps of a run as a hash; and as text if a run is repeated for it.

use std::fmt;

use sluice_domain::job::JobId;
use sluice_domain::time::Time;

/// What a step was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Nothing,
    Job(JobId),
    Key(u32),
}

/// The steps so far.
#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    steps: u64,
    /// Only of a run that is repeated for its trace.
    kept: Option<Vec<(Time, About, String)>>,
}

impl Trace {
    pub(crate) fn new(keep: bool) -> Trace {
        Trace { hash: 0x5107_1ce5, steps: 0, kept: keep.then(Vec::new) }
    }

    /// One step: what, when, about what, and one number that says how.
    #[inline]
    pub(crate) fn note(&mut self, now: i64, what: &'static str, about: About, detail: u64) {
        let (kind, name) = match about {
            About::Nothing => (0, 0),
            About::Job(job) => (1, job.0 as u64),
            About::Key(key) => (2, u64::from(key)),
        };
        for word in [now as u64, (what.len() as u64) << 32 | u64::from(what.as_bytes()[0]) << 8 | kind, name, detail] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.steps += 1;
        if let Some(kept) = &mut self.kept {
            kept.push((Time(now), about, format!("{what} {detail}")));
        }
    }

    /// The same with a text that is only formatted for a trace.
    #[inline]
    pub(crate) fn say(&mut self, now: i64, about: About, words: impl FnOnce() -> String) {
        if let Some(kept) = &mut self.kept {
            kept.push((Time(now), about, words()));
        }
    }

    /// Hash of every step.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// The last steps, or the last ones that touch one job or one key.
    pub(crate) fn lines(&self, about: Option<About>, limit: usize) -> Vec<String> {
        let steps = self.kept.iter().flatten().filter(|(_, touched, _)| about.is_none_or(|about| *touched == about));
        let mut lines: Vec<String> = steps.map(|(at, about, words)| format!("{} {about} {words}", at.0)).collect();
        lines.split_off(lines.len().saturating_sub(limit))
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            About::Nothing => f.write_str("-"),
            About::Job(job) => write!(f, "{job}"),
            About::Key(key) => write!(f, "key-{key}"),
        }
    }
}
