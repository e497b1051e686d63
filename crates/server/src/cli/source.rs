//! `sluice sources show`: duplicates of a source, and the key lifetime that covers them.

use super::CliError;
use super::events::escaped;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped, heading, hint, style_of, styled};
use super::shape;
use super::table::{Cell, Column, Table, pairs};
use crate::operate::views::{KeyAdvice, ShapeView, SourceDetail};

const REFUSALS_SHOWN: usize = 5;

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The source
    name: String,
    /// Show what its payloads look like, and what has changed
    #[arg(long)]
    shape: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Show {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let shape = if self.shape { "/shape" } else { "" };
            let answer = client.get(&format!("/sources/{}{shape}", escaped(&self.name)), &[]).await?;
            if self.format.json {
                return print::json(&answer);
            }
            if self.shape {
                return print::print(&shape::render(&self.name, &print::deserialize::<Vec<ShapeView>>(&answer)?));
            }
            print::print(&render(&print::deserialize(&answer)?))
        })
    }
}

fn render(detail: &SourceDetail) -> String {
    let source = &detail.source;
    let verified = |open: bool, verify: &str| if open { styled(verify, style_of("dead")) } else { verify.to_owned() };
    let flows = source.flows.iter().map(|flow| {
        ("flow", format!("{}, {}, verified by {}", flow.name, flow.route, verified(flow.open, &flow.verify)))
    });
    let own = [
        ("source", source.name.clone()),
        ("paused", if source.paused { "yes; its senders receive 503".to_owned() } else { String::new() }),
        ("accepted", format!("{} in the last 7 days", grouped(source.accepted))),
        (
            "duplicates",
            match detail.keys.percent_of_requests {
                Some(percent) => {
                    let by_content = match source.by_content {
                        0 => String::new(),
                        count => format!("; {} recognized by their content", grouped(count)),
                    };
                    let duplicates = grouped(source.duplicates);
                    format!("{duplicates} in the last 7 days: {percent} % of its requests{by_content}")
                }
                None => "none in the last 7 days".to_owned(),
            },
        ),
        ("clashes", format!("{} in the last 7 days: same key, different content", grouped(source.clashes))),
    ];
    let mut text = pairs(own.into_iter().chain(flows));
    text.push_str(&keys(&detail.keys));
    text.push_str(&heading("Refused"));
    if source.refused_lately.is_empty() {
        text.push_str("None in the last day.\n");
    } else {
        let mut table = Table::new([
            Column::Wrap("CODE"),
            Column::Number("2 MINUTES"),
            Column::Number("HOUR"),
            Column::Number("DAY"),
            Column::Whole(""),
        ]);
        for (code, lately) in &source.refused_lately {
            let jump = if lately.jump { super::table::marked("spike", "dead") } else { Cell::from("") };
            table.row([code.as_str().into(), lately.minute.into(), lately.hour.into(), lately.day.into(), jump]);
        }
        text.push_str(&table.render());
    }
    for refusal in source.refusals.iter().take(REFUSALS_SHOWN) {
        let line = format!("{} from {}: {}: {}", ago(&refusal.at), refusal.address, refusal.code, refusal.detail);
        text.push_str(&pairs([("", line)]));
    }
    if !detail.mapping_warnings.is_empty() {
        text.push_str(&heading("Mapping warnings"));
        let mut table = Table::new([
            Column::Wrap("FIELD"),
            Column::Whole("WARNING"),
            Column::Number("EVENTS"),
            Column::Whole("LAST"),
        ]);
        for warning in &detail.mapping_warnings {
            let last = ago(&warning.last_at);
            table.row([warning.field.as_str().into(), warning.code.as_str().into(), warning.count.into(), last.into()]);
        }
        text.push_str(&table.render());
    }
    text.push_str(&heading("Limits"));
    if detail.limits.is_empty() {
        text.push_str("None.\n");
    }
    for limit in &detail.limits {
        let whose = limit.secret.as_ref().map_or("the source".to_owned(), |secret| format!("the secret {secret}"));
        text.push_str(&format!("{}: {whose} is limited to {}, burst {}\n", limit.flow, limit.rate, limit.burst));
    }
    text + &hint(&format!("\nIts events: sluice events --source {}", source.name))
}

fn keys(keys: &KeyAdvice) -> String {
    let mut text = heading("Keys");
    if let (Some(p50), Some(p99), Some(p999)) = (&keys.p50, &keys.p99, &keys.p999) {
        let late = format!("half within {p50}, 99 % within {p99}, 99.9 % within {p999}");
        let expired = match keys.after_expiry {
            0 => "none".to_owned(),
            count => format!("{}: each became a new event", styled(&grouped(count), style_of("dead"))),
        };
        text.push_str(&pairs([
            ("duplicates", format!("{} in total", grouped(keys.duplicates))),
            ("delay", late),
            ("after expiry", expired),
            ("lifetime for 99.9 %", keys.lifetime_wanted.clone().unwrap_or_default()),
        ]));
        let mut table = Table::new([Column::Whole("WITHIN"), Column::Number("DUPLICATES")]);
        for line in &keys.lateness {
            table.row([Cell::from(line.within.as_str()), line.duplicates.into()]);
        }
        text.push_str(&table.render());
    }
    for lifetime in &keys.lifetimes {
        let word =
            if lifetime.enough { styled("enough", style_of("done")) } else { styled("too short", style_of("dead")) };
        text.push_str(&pairs([(lifetime.flow.as_str(), format!("{word}: {}", lifetime.advice))]));
    }
    text
}
