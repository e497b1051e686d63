//! `sluice sources show --shape` and `sluice sources accept`.

use serde_json::json;

use super::CliError;
use super::events::escaped;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped, heading, hint, plural};
use super::selection::Actor;
use super::table::{Column, Table, marked};
use crate::operate::views::{NoticeView, ShapeView};

/// Make a changed payload the new normal
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sluice sources accept website --field utm --reason \"new form\"\n  sluice sources accept website --type lead.created --reason \"version 2 of the form\""
)]
pub(super) struct Accept {
    /// The source
    name: String,
    /// Only of this type of event
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of the field at this path, as `sources show --shape` lists it
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Accept {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let path = format!("/sources/{}/shape/accept", escaped(&self.name));
            let order = json!({
                "event_type": self.event_type, "field": self.field, "reason": self.reason, "actor": self.actor.name()
            });
            let answer = client.post(&path, &order).await?;
            let Some(shapes) = self.format.read::<Vec<ShapeView>>(&answer)? else { return Ok(()) };
            print::print(&render(&self.name, &shapes))
        })
    }
}

pub(super) fn render(source: &str, shapes: &[ShapeView]) -> String {
    if shapes.is_empty() {
        return format!("No payloads of {source} were looked at yet.\n");
    }
    let mut text = String::new();
    for shape in shapes {
        text.push_str(&heading(&shape.event_type));
        let learned = match shape.samples < shape.learned_after {
            true => format!("; changes are noticed after {}", grouped(shape.learned_after)),
            false => String::new(),
        };
        text.push_str(&format!("Learned from {}{learned}.\n", plural(shape.samples, "request")));
        text.push_str(&fields(shape));
        for notice in &shape.notices {
            text.push_str(&render_notice(notice));
        }
        if shape.left_out > 0 {
            text.push_str(&hint(&format!("{} beyond the limits of a shape.", grouped(shape.left_out))));
        }
    }
    if shapes.iter().any(|shape| !shape.notices.is_empty()) {
        let order = format!("\nThe new normal: sluice sources accept {source} --field PATH --reason \"…\"");
        text.push_str(&hint(&order));
    }
    text
}

fn fields(shape: &ShapeView) -> String {
    let mut table = Table::new([
        Column::Wrap("FIELD"),
        Column::Whole("TYPE"),
        Column::Number("PRESENT"),
        Column::Wrap("VALUES"),
        Column::Whole("NOTE"),
    ]);
    for field in &shape.fields {
        let state = match (field.state.as_deref(), field.used) {
            (Some(state), _) => marked(state, "retrying"),
            (None, true) => "".into(),
            (None, false) => "not used".into(),
        };
        let percent = format!("{} %", field.percent);
        table.row([
            field.path.as_str().into(),
            field.types.as_str().into(),
            percent.into(),
            field.values.join(", ").into(),
            state,
        ]);
    }
    table.render()
}

fn render_notice(notice: &NoticeView) -> String {
    let example = notice.example.as_ref().map_or(String::new(), |example| format!(", such as {example}"));
    format!("! {}{example} ({})\n", notice.text, ago(&notice.at))
}
