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
    about: "When a failed step is tried again, and when no more. A step may have its own; what it leaves out is the worker's.",
    keys: &[
        key(
            "strategy",
            ValueType::OneOf(&["exponential", "fixed", "phased"]),
            "How the delay grows from one attempt to the next.",
        )
        .or("exponential"),
        key("base_delay", ValueType::Duration, "The first delay; the only one when the strategy is fixed.").or("2s"),
        key("base_ms", ValueType::Count(1, 86_400_000), "The same in milliseconds."),
        key("multiplier", ValueType::Number(1, 100), "What each following delay is multiplied by.").or("2"),
        key(
            "jitter",
            ValueType::OneOf(&["full", "equal", "none"]),
            "How much of a delay is left to chance: all of it, the second half, nothing.",
        )
        .or("full"),
        key("max_delay", ValueType::Duration, "No delay is longer.").or("120s"),
        key("max_attempts", ValueType::Count(1, 1000), "Attempts in all, the first one included.").or("7"),
        key(
            "max_attempts_conflict",
            ValueType::Count(1, 1000),
            "Attempts for failures that may pass, such as a conflict or a lock.",
        )
        .or("3"),
        key("retry_after_cap", ValueType::Duration, "A longer Retry-After than this is not believed.").or("1h"),
        key(
            "on_exhausted",
            ValueType::Described("a dead-letter queue, written dlq:NAME"),
            "Where the job goes once it is dead.",
        )
        .or("the queue's own dead-letter queue"),
        key("phases", ValueType::Tables("a phase"), "For the strategy phased: one after the other, the last one stays."),
        key(
            "budget_per_contact",
            ValueType::Count(1, 100_000),
            "Retries that one contact may take up within `budget_window`, over all jobs of the worker; then its jobs die with the \
             code retry-budget.",
        )
        .or("no limit"),
        key("budget_window", ValueType::Duration, "How long a retry counts against the budget.").or("1h"),
    ],
    later: &[],
    rules: &[same(&["base_delay", "base_ms"], "`base_ms` and `base_delay` say the same thing")],
};

pub(super) static PHASE: SectionSpec = SectionSpec {
    title: "a phase",
    about: "A stretch of attempts that share one kind of delay: `delay` or `exponential`.",
    keys: &[
        key("attempts", ValueType::Count(1, 1000), "How many attempts this phase covers.").required(),
        key("delay", ValueType::Described("`immediate` or a duration such as 1s"), "The same delay before each."),
        key("exponential", ValueType::Table("an exponential delay"), "A growing delay."),
    ],
    later: &[],
    rules: &[
        at_most_one(&["delay", "exponential"], "a phase has `delay` or `exponential`, not both", ""),
        at_least_one(&["delay", "exponential"], "a phase needs `delay` or `exponential`", "such as: delay: 1s"),
    ],
};

pub(super) static EXPONENTIAL: SectionSpec = SectionSpec {
    title: "an exponential delay",
    about: "A delay that grows with every attempt of its phase.",
    keys: &[
        key("base", ValueType::Duration, "The first delay.").required(),
        key("multiplier", ValueType::Number(1, 100), "What each following delay is multiplied by.").or("2"),
        key("max", ValueType::Duration, "No delay is longer.").or("120s"),
    ],
    later: &[],
    rules: &[],
};

/// Reads a policy of a worker that consumes this queue; what it leaves out is taken from `inherited`.
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
                    "without jitter, jobs that failed together come back together",
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
                format!(
                    "`max_attempts_conflict` is {attempts}, more than the {} attempts there are",
                    policy.max_attempts
                ),
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
                .error(
                    fields.key_span("budget_window"),
                    "missing-key",
                    "there is a `budget_window` and no `budget_per_contact`",
                )
                .hint("add budget_per_contact with the number of retries"),
        }
    }
    if let Some(queue) = read_exhausted(&fields, context) {
        policy.dead_letter_queue = Some(queue.into());
    }
    policy
}

/// The delays, if anything is said about them.
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

/// Keys that mean nothing with a strategy.
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
                format!("`{key}` has no meaning with the strategy {strategy}"),
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
            .error(span, "bad-value", format!("`on_exhausted` names a dead-letter queue, and this is `{text}`"))
            .hint(format!("write dlq:{}", if names.queues.contains_key(text) { text } else { "NAME" }));
        return None;
    };
    names.check_queue(fields.report, span, queue);
    if queue == consumed {
        fields
            .report
            .error(
                span,
                "dead-letter-loop",
                format!("dead jobs would go back into `{queue}`, where this worker fails them again"),
            )
            .hint(format!("write dlq:{queue}-dlq"));
    }
    Some(queue.to_owned())
}
