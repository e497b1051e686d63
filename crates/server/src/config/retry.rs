//! `retry:` to a [`RetryPolicy`].

use std::time::Duration;

use sluice_domain::retry::{Delay, Jitter, RetryBudget, RetryPhase, RetryPolicy};
use sluice_domain::unit;

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::rule::{at_least_one, at_most_one, same};
use super::table::{SectionSpec, ValueType, key};

pub(super) static RETRY: SectionSpec = SectionSpec {
    title: "a retry policy",
    about: "Retries of a failed step. A step may have its own policy, which inherits missing keys from the worker's.",
    keys: &[
        key(
            "strategy",
            ValueType::OneOf(&["exponential", "fixed", "phased"]),
            "Growth of the delay between attempts.",
        )
        .or("exponential"),
        key("base_delay", ValueType::Duration, "First delay; every delay of the strategy fixed.").or("2s"),
        key("base_ms", ValueType::Count(1, 86_400_000), "`base_delay` in milliseconds."),
        key("multiplier", ValueType::Number(1, 100), "Factor of each following delay.").or("2"),
        key(
            "jitter",
            ValueType::OneOf(&["full", "equal", "none"]),
            "Random part of a delay: all of it, half of it, none.",
        )
        .or("full"),
        key("max_delay", ValueType::Duration, "Maximum delay.").or("120s"),
        key("max_attempts", ValueType::Count(1, 1000), "Maximum number of attempts, including the first.").or("7"),
        key(
            "max_attempts_conflict",
            ValueType::Count(1, 1000),
            "Maximum number of attempts for failures of class conflict, such as a lock.",
        )
        .or("3"),
        key("retry_after_cap", ValueType::Duration, "Maximum Retry-After that is honoured.").or("1h"),
        key(
            "on_exhausted",
            ValueType::Described("a dead-letter queue, written dlq:NAME"),
            "Dead-letter queue of the job.",
        )
        .or("the queue's own dead-letter queue"),
        key("phases", ValueType::Tables("a phase"), "Phases of the strategy phased, in order; the last one continues."),
        key(
            "budget_per_contact",
            ValueType::Count(1, 100_000),
            "Maximum number of retries per contact within `budget_window`, over all jobs of the worker; above it, jobs die with the code retry-budget.",
        )
        .or("no limit"),
        key("budget_window", ValueType::Duration, "Window of the retry budget.").or("1h"),
    ],
    later: &[],
    rules: &[same(&["base_delay", "base_ms"], "`base_ms` and `base_delay` are synonyms")],
};

pub(super) static PHASE: SectionSpec = SectionSpec {
    title: "a phase",
    about: "Attempts with the same kind of delay: `delay` or `exponential`.",
    keys: &[
        key("attempts", ValueType::Count(1, 1000), "Number of attempts of the phase.").required(),
        key("delay", ValueType::Described("`immediate` or a duration such as 1s"), "Constant delay."),
        key("exponential", ValueType::Table("an exponential delay"), "Growing delay."),
    ],
    later: &[],
    rules: &[
        at_most_one(&["delay", "exponential"], "a phase must have `delay` or `exponential`, not both", ""),
        at_least_one(&["delay", "exponential"], "a phase needs `delay` or `exponential`", "such as: delay: 1s"),
    ],
};

pub(super) static EXPONENTIAL: SectionSpec = SectionSpec {
    title: "an exponential delay",
    about: "Delay that grows with every attempt of the phase.",
    keys: &[
        key("base", ValueType::Duration, "First delay.").required(),
        key("multiplier", ValueType::Number(1, 100), "Factor of each following delay.").or("2"),
        key("max", ValueType::Duration, "Maximum delay.").or("120s"),
    ],
    later: &[],
    rules: &[],
};

/// Reads the retry policy of a worker of this queue; missing keys are inherited.
pub(super) fn read(
    report: Report<'_>,
    node: &YamlNode,
    inherited: &RetryPolicy,
    context: (&Declarations, &str),
) -> RetryPolicy {
    let mut policy = inherited.clone();
    let Some(fields) = Fields::open(report, node, &[&RETRY]) else { return policy };
    if let Some(phases) = read_delays(&fields, inherited) {
        policy.phases = phases;
    }
    match fields.one_of("jitter") {
        Some("equal") => policy.jitter = Jitter::Equal,
        Some("full") => policy.jitter = Jitter::Full,
        Some(_) => {
            policy.jitter = Jitter::None;
            report
                .warning(
                    fields.key_span("jitter"),
                    "no-jitter",
                    "without jitter, jobs that failed together retry together",
                )
                .hint("write `jitter: full`");
        }
        None => {}
    }
    if let Some(attempts) = fields.count("max_attempts") {
        policy.max_attempts = attempts;
        policy.max_attempts_conflict = policy.max_attempts_conflict.min(attempts);
    }
    if let Some(attempts) = fields.count("max_attempts_conflict") {
        policy.max_attempts_conflict = attempts;
        if attempts > policy.max_attempts {
            report.error(
                fields.key_span("max_attempts_conflict"),
                "contradiction",
                format!("`max_attempts_conflict` is {attempts}, more than `max_attempts` ({})", policy.max_attempts),
            );
        }
    }
    if let Some(cap) = fields.duration("retry_after_cap") {
        policy.retry_after_cap = cap;
    }
    if let Some(retries) = fields.count("budget_per_contact") {
        policy.budget = Some(RetryBudget { retries, window: RetryBudget::WINDOW });
    }
    if let Some(window) = fields.duration("budget_window") {
        match &mut policy.budget {
            Some(budget) => budget.window = window,
            None => report
                .error(fields.key_span("budget_window"), "missing-key", "`budget_window` requires `budget_per_contact`")
                .hint("add budget_per_contact with the number of retries"),
        }
    }
    if let Some(queue) = read_exhausted(&fields, context) {
        policy.dead_letter_queue = Some(queue.into());
    }
    policy
}

/// Delays, if any key sets them.
fn read_delays(fields: &Fields<'_, '_>, inherited: &RetryPolicy) -> Option<Vec<RetryPhase>> {
    let strategy = fields.one_of("strategy");
    let base_ms = fields.count("base_ms").map(|ms| Duration::from_millis(ms.into()));
    let base_delay = fields.duration("base_delay");
    let base = base_delay.or(base_ms);
    let (multiplier, cap) = (fields.number("multiplier"), fields.duration("max_delay"));
    let phases = fields.node("phases");
    if strategy == Some("phased") || (strategy.is_none() && phases.is_some()) {
        refuse(fields, "phased");
        return Some(read_phases(fields, phases));
    }
    refuse(fields, strategy.unwrap_or("exponential"));
    if strategy == Some("fixed") {
        let delay = base.unwrap_or(Duration::from_secs(2));
        return Some(vec![RetryPhase { retries: u32::MAX, delay: Delay::Fixed { delay } }]);
    }
    if strategy.is_none() && base.is_none() && multiplier.is_none() && cap.is_none() {
        return None;
    }
    let (was_base, was_multiplier, was_cap) = match inherited.phases.as_slice() {
        [RetryPhase { delay: Delay::Exponential { base, multiplier, cap }, .. }] => (*base, *multiplier, *cap),
        _ => (Duration::from_secs(2), 2.0, Duration::from_secs(120)),
    };
    let base = base.unwrap_or(was_base);
    if let Some(cap) = cap.filter(|cap| *cap < base) {
        fields.report.error(
            fields.key_span("max_delay"),
            "contradiction",
            format!(
                "`max_delay` ({}) is shorter than the first delay ({})",
                unit::format_duration(cap),
                unit::format_duration(base)
            ),
        );
    }
    let delay = Delay::Exponential {
        base,
        multiplier: multiplier.unwrap_or(was_multiplier),
        cap: cap.unwrap_or(was_cap.max(base)),
    };
    Some(vec![RetryPhase { retries: u32::MAX, delay }])
}

/// Keys that a strategy does not use.
pub(super) const MEANINGLESS: [(&str, &[&str]); 3] = [
    ("exponential", &["phases"]),
    ("fixed", &["phases", "multiplier", "max_delay"]),
    ("phased", &["base_delay", "base_ms", "multiplier", "max_delay"]),
];

fn refuse(fields: &Fields<'_, '_>, strategy: &str) {
    for key in MEANINGLESS.iter().filter(|(name, _)| *name == strategy).flat_map(|(_, keys)| *keys) {
        if fields.node(key).is_some() {
            fields.report.error(
                fields.key_span(key),
                "exclusive-keys",
                format!("`{key}` is not used with the strategy {strategy}"),
            );
        }
    }
}

fn read_phases(fields: &Fields<'_, '_>, node: Option<&YamlNode>) -> Vec<RetryPhase> {
    let report = fields.report;
    let items = node.and_then(YamlNode::items).unwrap_or_default();
    if items.is_empty() {
        let span = node.map_or(fields.span, |node| node.span);
        report
            .error(span, "missing-key", "the strategy phased needs `phases`, a list")
            .hint("such as: phases: [{attempts: 3, delay: immediate}, {attempts: 2, delay: 1s}]");
    }
    items.iter().filter_map(|item| read_phase(report, item)).collect()
}

fn read_phase(report: Report<'_>, node: &YamlNode) -> Option<RetryPhase> {
    let fields = Fields::open(report, node, &[&PHASE])?;
    let retries = fields.count("attempts")?;
    let delay = match (fields.text("delay"), fields.node("exponential")) {
        (Some("immediate"), None) => Delay::Immediate,
        (Some(_), None) => Delay::Fixed { delay: fields.duration("delay")? },
        (None, Some(node)) => {
            let fields = Fields::open(report, node, &[&EXPONENTIAL])?;
            let base = fields.duration("base")?;
            let cap = fields.duration("max").unwrap_or(Duration::from_secs(120).max(base));
            Delay::Exponential { base, multiplier: fields.number("multiplier").unwrap_or(2.0), cap }
        }
        _ => return None,
    };
    Some(RetryPhase { retries, delay })
}

fn read_exhausted(fields: &Fields<'_, '_>, (names, consumed): (&Declarations, &str)) -> Option<String> {
    let text = fields.text("on_exhausted")?;
    let span = fields.node("on_exhausted")?.span;
    let Some(queue) = text.strip_prefix("dlq:").map(str::trim).filter(|queue| !queue.is_empty()) else {
        fields
            .report
            .error(span, "bad-value", format!("`on_exhausted` must name a dead-letter queue, found `{text}`"))
            .hint(format!("write dlq:{}", if names.queues.contains_key(text) { text } else { "NAME" }));
        return None;
    };
    names.check_queue(fields.report, span, queue);
    if queue == consumed {
        fields
            .report
            .error(span, "dead-letter-loop", format!("dead jobs would return to `{queue}`, which this worker consumes"))
            .hint(format!("write dlq:{queue}-dlq"));
    }
    Some(queue.to_owned())
}
