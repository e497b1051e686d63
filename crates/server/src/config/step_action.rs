//! Reads the action of a step.

use sluice_domain::action::Action;
use sluice_domain::script::Runtime;

use super::catalogue::Catalogue;
use super::fields::Fields;
use super::node::Span;
use super::script;

/// Action of a step with its location. `queue:` and `queue_pull:` contain their parameters.
pub(super) fn read(fields: &Fields<'_, '_>, connectors: &Catalogue) -> Option<(Action, Span)> {
    let report = fields.report;
    let own = [("queue", Action::Queue), ("queue_pull", Action::QueuePull)];
    let mut written = own.into_iter().filter(|(name, _)| fields.node_if_known(name).is_some());
    if let Some((name, action)) = written.next() {
        let another = written.next().is_some() || fields.node("run").or(fields.node("uses")).is_some();
        return (!another).then(|| (action, fields.key_span(name)));
    }
    let found = match (fields.node("run"), fields.node("uses")) {
        (Some(_), Some(_)) => return None,
        (run, uses) => run.or(uses)?,
    };
    let names = || connectors.actions();
    let Some(name) = found.text() else {
        report.error(
            found.span,
            "wrong-type",
            format!("`run` must be the name of an action, found {}", found.describe()),
        );
        return None;
    };
    let runtime = (fields.node("uses").is_some() && Runtime::parse(name).is_some()).then_some(Action::Script);
    let action = connectors.action(name).or(runtime).map(|action| (action, found.span));
    // The action may be one of a connector that could not be read, which is reported.
    if action.is_none() && !connectors.is_incomplete() {
        if name.contains(':') {
            script::unknown_runtime(report, found.span, name);
        } else {
            let otherwise = "`sluice reference actions` and `sluice connectors` show all actions";
            report.error(found.span, "unknown-action", format!("unknown action `{name}`")).meant(
                name,
                names(),
                otherwise,
            );
        }
    }
    action
}
