//! `sluice sim`: the simulated CRM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::unit::{grouped, plural};
use sluice_server::cli::print::{self, hint};
use sluice_server::cli::{CliError, Stop, duration, exit, pairs, runtime};
use sluice_simulator::faults::{Everything, Millis};
use sluice_simulator::{FaultPlan, Salesforce, SalesforceSettings, Sink, SinkSettings};

/// Interval between two checks for changed counts.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Run a simulated Salesforce that fails on order and counts what really happened
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\"doubled\" counts external ids under which more than one record was created: what must stay 0.\n\
More figures: GET /sim/truth. A fault plan is the JSON that GET /sim/faults answers.\n\n\
Examples:\n  sluice sim\n  sluice sim --fail 30 --latency 50ms\n  sluice sim --faults faults.json --sink 127.0.0.1:8091"
)]
pub struct SimArgs {
    /// Where the simulated Salesforce listens; port 0 lets the system choose
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Also run a plain HTTP server here that takes anything and counts it
    #[arg(long, value_name = "ADDRESS")]
    sink: Option<SocketAddr>,
    /// The share of calls that fail, in every way there is
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "faults")]
    fail: Option<f64>,
    /// Decides which calls fail; the same seed and the same calls meet the same faults
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// A fault plan
    #[arg(long, value_name = "FILE.json")]
    faults: Option<PathBuf>,
    /// Added to every call
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    latency: Option<Duration>,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| "write a number from 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("it must be between 0 and 100".to_owned()) }
}

impl SimArgs {
    pub fn run(self) -> Result<(), CliError> {
        let plan = self.plan()?;
        let started = |error: std::io::Error, address: SocketAddr| {
            let code = if error.kind() == std::io::ErrorKind::InvalidInput { exit::USAGE } else { exit::UNAVAILABLE };
            CliError::new(code, format!("the simulator cannot start on {address}: {error}"))
        };
        let settings =
            SalesforceSettings { listen: self.listen, faults: plan.clone(), ..SalesforceSettings::default() };
        let (client_id, client_secret) = (settings.client_id.clone(), settings.client_secret.clone());
        let org = Salesforce::start(settings).map_err(|error| started(error, self.listen))?;
        let sink = match self.sink {
            None => None,
            Some(listen) => {
                let settings = SinkSettings { listen, faults: plan, ..SinkSettings::default() };
                Some(Sink::start(settings).map_err(|error| started(error, listen))?)
            }
        };
        let mut first = json!({ "salesforce": org.url(), "client_id": client_id, "client_secret": client_secret });
        if let (Some(sink), Value::Object(members)) = (&sink, &mut first) {
            members.insert("sink".to_owned(), json!(sink.url()));
        }
        let greeting = match self.json {
            true => first.to_string(),
            false => self.greeting(&org, sink.as_ref(), &client_id, &client_secret),
        };
        let watched = runtime()?.block_on(self.watch(&org, sink.as_ref(), &greeting));
        let counts = Counts::of(&org, sink.as_ref());
        match watched {
            Ok(()) if self.json => print::print(&json!({ "totals": counts.to_json() }).to_string()),
            Ok(()) => print::print(&format!("\nIn all: {}", counts.render())),
            failed => failed,
        }
    }

    fn plan(&self) -> Result<FaultPlan, CliError> {
        let mut plan = match (&self.faults, self.fail) {
            (Some(file), _) => {
                let usage = |error: String| CliError::new(exit::USAGE, format!("{}: {error}", file.display()));
                let text = std::fs::read_to_string(file).map_err(|error| usage(error.to_string()))?;
                let plan: FaultPlan = serde_json::from_str(&text).map_err(|error| usage(error.to_string()))?;
                plan.check().map_err(|error| usage(error.to_string()))?;
                plan
            }
            (None, Some(percent)) => Everything { percent, seed: self.seed, ..Everything::default() }.plan(),
            (None, None) => FaultPlan { seed: self.seed, ..FaultPlan::none() },
        };
        if let Some(latency) = self.latency {
            plan.latency = Some(Millis::fixed(u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)));
        }
        Ok(plan)
    }

    fn greeting(&self, org: &Salesforce, sink: Option<&Sink>, client_id: &str, client_secret: &str) -> String {
        let misbehaves = match (&self.faults, self.fail) {
            (Some(file), _) => format!("as {} says", file.display()),
            (None, Some(percent)) if percent > 0.0 => {
                format!("{percent} % of calls fail in every way there is (seed {})", self.seed)
            }
            _ => "not at all; try --fail 30".to_owned(),
        };
        let text = pairs([
            ("Salesforce", org.url()),
            ("client id", client_id.to_owned()),
            ("client secret", client_secret.to_owned()),
            ("sink", sink.map(Sink::url).unwrap_or_default()),
            ("misbehaves", misbehaves),
        ]);
        text + &hint(
            "\nA destination of type salesforce with this instance_url and these credentials reaches it. Ctrl-C stops it.",
        )
    }

    /// Prints the greeting, then a line whenever the counts have changed, until a stop signal. Signals are handled before the
    /// greeting, since a reader of it may stop the process at once.
    async fn watch(&self, org: &Salesforce, sink: Option<&Sink>, greeting: &str) -> Result<(), CliError> {
        let mut stop = Stop::listen()?;
        print::print(greeting)?;
        let mut look = tokio::time::interval(POLL_INTERVAL);
        let mut before = Counts::of(org, sink);
        loop {
            tokio::select! {
                () = stop.asked() => return Ok(()),
                _ = look.tick() => {
                    let now = Counts::of(org, sink);
                    if now != before {
                        print::print(&if self.json { now.to_json().to_string() } else { now.render() })?;
                        before = now;
                    }
                }
            }
        }
    }
}

/// Counts of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    calls: u64,
    records: u64,
    created: u64,
    updated: u64,
    doubled: u64,
    faults: u64,
    sink: Option<(u64, u64)>,
}

impl Counts {
    fn of(org: &Salesforce, sink: Option<&Sink>) -> Counts {
        let truth = org.truth();
        let sum =
            |figure: fn(&sluice_simulator::salesforce::ObjectTruth) -> u64| truth.objects.values().map(figure).sum();
        Counts {
            calls: truth.calls.received,
            records: sum(|object| object.records),
            created: sum(|object| object.created),
            updated: sum(|object| object.updated),
            doubled: sum(|object| object.created_again),
            faults: truth.faults_total(),
            sink: sink.map(Sink::truth).map(|truth| (truth.requests, truth.keys_applied_again)),
        }
    }

    fn to_json(self) -> Value {
        let mut counts = json!({
            "calls": self.calls,
            "records": self.records,
            "created": self.created,
            "updated": self.updated,
            "doubled": self.doubled,
            "faults": self.faults,
        });
        if let (Some((requests, doubled)), Value::Object(members)) = (self.sink, &mut counts) {
            members.insert("sink".to_owned(), json!({ "requests": requests, "doubled": doubled }));
        }
        counts
    }

    fn render(self) -> String {
        let mut text = format!(
            "{}: {} created, {} updated, {} doubled; {}, {}",
            plural(self.records, "record"),
            grouped(self.created),
            grouped(self.updated),
            grouped(self.doubled),
            plural(self.calls, "call"),
            plural(self.faults, "fault"),
        );
        if let Some((requests, doubled)) = self.sink {
            text.push_str(&format!("; sink: {}, {} doubled", plural(requests, "request"), grouped(doubled)));
        }
        text
    }
}
