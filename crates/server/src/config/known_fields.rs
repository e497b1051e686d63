//! Members of a payload known to a flow, used to detect new fields of a sender.

use std::sync::Arc;

use sluice_domain::flow::{Enqueue, PayloadRules};
use sluice_domain::hash::Set;
use sluice_domain::key::{KeyPart, KeyStrategy};
use sluice_domain::path::Segment;
use sluice_domain::template::Expression;

use super::trigger::Trigger;

/// Members named by the schema or read by the flow; `None` if the flow uses the whole body.
pub(super) fn of(trigger: &Trigger, admission: &PayloadRules, enqueue: &[Enqueue]) -> Option<Arc<Set<String>>> {
    let event = &trigger.event;
    if event.attributes.is_none() && admission.schema.is_none() {
        return None;
    }
    let mut known = Known { names: Set::default(), everything: false };
    known.names.extend(admission.schema.iter().flat_map(|schema| schema.properties().iter().cloned()));
    let sections = [Some(&event.identity), event.attributes.as_ref(), Some(&event.routing)];
    let templates = sections.into_iter().flatten().flatten().map(|(_, field)| &field.from);
    let single = [Some(&event.event_type), event.source_event_id.as_ref(), event.occurred_at.as_ref()];
    for template in templates.chain(single.into_iter().flatten()) {
        template.visit_expressions(&mut |expression| known.read(expression));
    }
    for strategy in &trigger.idempotency.strategies {
        match strategy {
            KeyStrategy::Parts(parts) | KeyStrategy::Fingerprint { parts, .. } => known.read_parts(parts),
            KeyStrategy::Bucket { parts, at, .. } => {
                known.read_parts(parts);
                known.read(at);
            }
            KeyStrategy::Header(_) => {}
        }
    }
    for step in enqueue {
        step.condition.iter().chain(&step.body_from).for_each(|expression| known.read(expression));
    }
    for path in trigger.body.dropped.iter().chain(&trigger.idempotency.volatile) {
        if let Some(Segment::Key(name)) = path.0.first() {
            known.names.insert(name.clone());
        }
    }
    (!known.everything).then(|| Arc::new(known.names))
}

struct Known {
    names: Set<String>,
    everything: bool,
}

impl Known {
    fn read_parts(&mut self, parts: &[KeyPart]) {
        for part in parts {
            if let KeyPart::Value(expression) = part {
                self.read(expression);
            }
        }
    }

    fn read(&mut self, expression: &Expression) {
        match expression.as_path() {
            Some(("body", path)) => match path.0.first() {
                Some(Segment::Key(name)) => {
                    self.names.insert(name.clone());
                }
                _ => self.everything = true,
            },
            Some(_) => {}
            None => self.scan(expression.source()),
        }
    }

    /// Every `body.NAME` in an expression counts as read; a `body` without a name reads everything.
    fn scan(&mut self, source: &str) {
        for (at, word) in source.match_indices("body") {
            let before = source[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &source[at + word.len()..];
            let name: String = match (rest.strip_prefix('.'), rest.strip_prefix("['").or(rest.strip_prefix("[\""))) {
                (Some(rest), _) => rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect(),
                (None, Some(rest)) => rest.chars().take_while(|c| !matches!(c, '\'' | '"')).collect(),
                (None, None) => String::new(),
            };
            if name.is_empty() {
                self.everything = true;
            } else {
                self.names.insert(name);
            }
        }
    }
}
