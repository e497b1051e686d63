//! `sluice sim`: the simulated CRM, and HubSpot, a sink, a mail server, Slack, S3, SES, a push service, an OpenID provider and a declared
//! connector's provider beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::unit::{grouped, plural};
use sluice_server::cli::print::{self, hint};
use sluice_server::cli::{CliError, Stop, duration, exit, pairs, runtime};
use sluice_simulator::Inspected;
use sluice_simulator::faults::{Everything, Millis};
use sluice_simulator::sink::Provider;
use sluice_simulator::{
    FaultPlan, Hubspot, HubspotSettings, OpenId, OpenIdSettings, Salesforce, SalesforceSettings, Sink, SinkSettings,
    Slack, SlackSettings, Smtp, SmtpSettings,
};

use super::sim_connector::ConnectorSimulator;
use super::sim_list;
use super::sim_received::ReceivedArgs;
use super::sim_services::{self, RunningService, ServiceAddress, service};

/// Interval between two checks for changed counts.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Run a simulated Salesforce, HubSpot, mail server and Slack that fail on order
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\"doubled\" counts external ids under which more than one record was created: what must stay 0.\n\
More figures: GET /sim/truth, and what arrived: GET /sim/received. A fault plan is the JSON that GET /sim/faults\n\
answers. The others are below it: /sim/mail/received, /sim/slack/faults, /sim/sink/truth.\n\n\
Examples:\n  sluice sim\n  sluice sim --fail 30 --latency 50ms\n  sluice sim --faults faults.json --sink 127.0.0.1:8091\n  \
sluice sim --mail 127.0.0.1:8025 --slack 127.0.0.1:8092\n  sluice sim --hubspot 127.0.0.1:8093\n  sluice sim --s3 127.0.0.1:8095 --ses 127.0.0.1:8096 --webpush 127.0.0.1:8097\n  sluice sim --openid 127.0.0.1:8099\n  sluice sim --connector twilio --fail 20\n  sluice sim --service twilio=127.0.0.1:8098\n  sluice sim --list\n  sluice sim received",
    args_conflicts_with_subcommands = true
)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// Where the simulated Salesforce listens; port 0 lets the system choose
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Also run a plain HTTP server here that takes anything and counts it
    #[arg(long, value_name = "ADDRESS")]
    sink: Option<SocketAddr>,
    /// Also run a mail server here; it keeps what it accepts and delivers nothing
    #[arg(long, value_name = "ADDRESS")]
    mail: Option<SocketAddr>,
    /// Also run a Slack here: its Web API and an incoming webhook
    #[arg(long, value_name = "ADDRESS")]
    slack: Option<SocketAddr>,
    /// Also run a HubSpot here
    #[arg(long, value_name = "ADDRESS")]
    hubspot: Option<SocketAddr>,
    /// Also run an S3-compatible store here, for the buckets that are named
    #[arg(long, value_name = "ADDRESS")]
    s3: Option<SocketAddr>,
    /// Also run an Amazon SES here
    #[arg(long, value_name = "ADDRESS")]
    ses: Option<SocketAddr>,
    /// Also run a push service of browsers here
    #[arg(long, value_name = "ADDRESS")]
    webpush: Option<SocketAddr>,
    /// Also run an OpenID provider here
    #[arg(long, value_name = "ADDRESS")]
    openid: Option<SocketAddr>,
    /// Also answer as the provider of this connector, with its recorded answers
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Where that provider listens
    #[arg(long, default_value = "127.0.0.1:8094", value_name = "ADDRESS", requires = "connector")]
    connector_listen: SocketAddr,
    /// Directory or file of the configuration that declares the connector, if it does not ship
    #[arg(long, value_name = "DIR", requires = "connector")]
    connector_config: Option<PathBuf>,
    /// Also run a service here: twilio, segment, sendgrid, postmark, klaviyo or pagerduty; can be repeated
    #[arg(long = "service", value_name = "NAME=ADDRESS", value_parser = service)]
    services: Vec<ServiceAddress>,
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
    /// List what can be simulated, with addresses and faults, and exit
    #[arg(long)]
    list: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum SimCommand {
    /// List what a running simulator received
    Received(ReceivedArgs),
}

/// The running simulators.
struct Simulators {
    org: Salesforce,
    sink: Option<Sink>,
    mail: Option<Smtp>,
    slack: Option<Slack>,
    hubspot: Option<Hubspot>,
    openid: Option<OpenId>,
    connector: Option<ConnectorSimulator>,
    providers: Vec<(Provider, Sink)>,
    services: Vec<RunningService>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| "write a number from 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("it must be between 0 and 100".to_owned()) }
}

impl SimArgs {
    pub fn run(self) -> Result<(), CliError> {
        if let Some(SimCommand::Received(command)) = self.command {
            return command.run();
        }
        if self.list {
            return sim_list::print_list(self.json);
        }
        let simulators = self.start()?;
        let greeting = match self.json {
            true => simulators.to_json().to_string(),
            false => self.greeting(&simulators),
        };
        let watched = runtime()?.block_on(self.watch(&simulators, &greeting));
        let counts = Counts::of(&simulators);
        match watched {
            Ok(()) if self.json => print::print(&json!({ "totals": counts.to_json() }).to_string()),
            Ok(()) => print::print(&format!("\nIn all: {}", counts.render())),
            failed => failed,
        }
    }

    fn start(&self) -> Result<Simulators, CliError> {
        let plan = self.plan()?;
        let started = |address: SocketAddr| {
            move |error: std::io::Error| {
                let usage = error.kind() == std::io::ErrorKind::InvalidInput;
                let code = if usage { exit::USAGE } else { exit::UNAVAILABLE };
                CliError::new(code, format!("the simulator cannot start on {address}: {error}"))
            }
        };
        let sink = self.sink.map(|listen| {
            let settings = SinkSettings { listen, faults: plan.clone(), ..SinkSettings::default() };
            Sink::start(settings).map_err(started(listen))
        });
        let mail = self.mail.map(|listen| {
            let settings = SmtpSettings { listen, faults: plan.clone(), ..SmtpSettings::default() };
            Smtp::start(settings).map_err(started(listen))
        });
        let slack = self.slack.map(|listen| {
            let settings = SlackSettings { listen, faults: plan.clone(), ..SlackSettings::default() };
            Slack::start(settings).map_err(started(listen))
        });
        let hubspot = self.hubspot.map(|listen| {
            let settings = HubspotSettings { listen, faults: plan.clone(), ..HubspotSettings::default() };
            Hubspot::start(settings).map_err(started(listen))
        });
        let openid = self.openid.map(|listen| {
            let settings = OpenIdSettings { listen, faults: plan.clone(), ..OpenIdSettings::default() };
            OpenId::start(settings).map_err(started(listen))
        });
        let connector = match &self.connector {
            Some(name) => {
                let tests = ConnectorSimulator::find(name, self.connector_config.as_deref())?;
                let listen = self.connector_listen;
                Some(ConnectorSimulator::start(&tests, listen, plan.clone()).map_err(started(listen))?)
            }
            None => None,
        };
        let mut providers = vec![];
        for (provider, listen) in
            [(Provider::S3, self.s3), (Provider::Ses, self.ses), (Provider::WebPush, self.webpush)]
        {
            let Some(listen) = listen else { continue };
            let (name, faults) = (provider.name(), plan.clone());
            let settings = SinkSettings { listen, faults, provider: Some(provider), name, ..SinkSettings::default() };
            providers.push((provider, Sink::start(settings).map_err(started(listen))?));
        }
        let services = self
            .services
            .iter()
            .map(|address| RunningService::start(address, plan.clone()).map_err(started(address.listen)));
        let services: Vec<RunningService> = services.collect::<Result<_, _>>()?;
        let (sink, mail, slack) = (sink.transpose()?, mail.transpose()?, slack.transpose()?);
        let (hubspot, openid) = (hubspot.transpose()?, openid.transpose()?);
        let beside: Vec<Inspected> = [
            sink.as_ref().map(Sink::inspected),
            mail.as_ref().map(Smtp::inspected),
            slack.as_ref().map(Slack::inspected),
            hubspot.as_ref().map(Hubspot::inspected),
            openid.as_ref().map(OpenId::inspected),
            connector.as_ref().map(|connector| connector.sink.inspected()),
        ]
        .into_iter()
        .flatten()
        .chain(providers.iter().map(|(_, sink)| sink.inspected()))
        .chain(services.iter().map(|running| running.service.inspected()))
        .collect();
        let settings =
            SalesforceSettings { listen: self.listen, faults: plan, beside, ..SalesforceSettings::default() };
        let org = Salesforce::start(settings).map_err(started(self.listen))?;
        Ok(Simulators { org, sink, mail, slack, hubspot, openid, connector, providers, services })
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

    fn greeting(&self, simulators: &Simulators) -> String {
        let misbehaves = match (&self.faults, self.fail) {
            (Some(file), _) => format!("as {} says", file.display()),
            (None, Some(percent)) if percent > 0.0 => {
                format!("{percent} % of calls fail in every way there is (seed {})", self.seed)
            }
            _ => "not at all; try --fail 30".to_owned(),
        };
        let Simulators { org, sink, mail, slack, hubspot, openid, connector, services, .. } = simulators;
        let provider = |provider: Provider| simulators.provider(provider).map(Sink::url).unwrap_or_default();
        let defaults = SalesforceSettings::default();
        let of_slack = |text: fn(&Slack) -> String| slack.as_ref().map(text).unwrap_or_default();
        let shown = [
            ("Salesforce", org.url()),
            ("client id", defaults.client_id),
            ("client secret", defaults.client_secret),
            ("sink", sink.as_ref().map(Sink::url).unwrap_or_default()),
            ("mail", mail.as_ref().map(mail_url).unwrap_or_default()),
            ("Slack API", of_slack(Slack::api_url)),
            ("Slack token", of_slack(|_| SlackSettings::default().token)),
            ("Slack channel", of_slack(|_| SlackSettings::default().channels.join(", "))),
            ("Slack webhook", of_slack(Slack::webhook_url)),
            ("HubSpot", hubspot.as_ref().map(Hubspot::url).unwrap_or_default()),
            ("HubSpot token", hubspot.as_ref().map(|_| HubspotSettings::default().token).unwrap_or_default()),
            ("OpenID issuer", openid.as_ref().map(OpenId::issuer).unwrap_or_default()),
            ("OpenID client", openid.as_ref().map(openid_client).unwrap_or_default()),
            ("connector", connector.as_ref().map(|connector| connector.name.clone()).unwrap_or_default()),
            ("base_url", connector.as_ref().map(ConnectorSimulator::base_url).unwrap_or_default()),
            ("token endpoint", connector.as_ref().and_then(ConnectorSimulator::token_url).unwrap_or_default()),
            ("S3 endpoint", provider(Provider::S3)),
            ("SES base_url", provider(Provider::Ses)),
            ("push endpoint", simulators.push_endpoint().unwrap_or_default()),
        ];
        let last = [("received", format!("{}/sim/received", org.url())), ("misbehaves", misbehaves)];
        let text = pairs(shown.into_iter().chain(services.iter().map(RunningService::line)).chain(last));
        text + &hint(
            "\nA destination of type salesforce with this instance_url and these credentials reaches it. Ctrl-C stops it.",
        )
    }

    /// Prints the greeting, then a line whenever the counts have changed, until a stop signal. Signals are handled before the
    /// greeting, since a reader of it may stop the process at once.
    async fn watch(&self, simulators: &Simulators, greeting: &str) -> Result<(), CliError> {
        let mut stop = Stop::listen()?;
        print::print(greeting)?;
        let mut look = tokio::time::interval(POLL_INTERVAL);
        let mut before = Counts::of(simulators);
        loop {
            tokio::select! {
                () = stop.asked() => return Ok(()),
                _ = look.tick() => {
                    let now = Counts::of(simulators);
                    if now != before {
                        print::print(&if self.json { now.to_json().to_string() } else { now.render() })?;
                        before = now;
                    }
                }
            }
        }
    }
}

/// Id and secret of the client.
fn openid_client(_: &OpenId) -> String {
    let OpenIdSettings { client_id, client_secret, .. } = OpenIdSettings::default();
    format!("{client_id} ({client_secret})")
}

fn mail_url(mail: &Smtp) -> String {
    format!("smtp://{}", mail.address())
}

impl Simulators {
    fn provider(&self, wanted: Provider) -> Option<&Sink> {
        self.providers.iter().find(|(provider, _)| *provider == wanted).map(|(_, sink)| sink)
    }

    /// Endpoint of a subscription.
    fn push_endpoint(&self) -> Option<String> {
        self.provider(Provider::WebPush).map(|sink| format!("{}/push/1", sink.url()))
    }

    /// Addresses and credentials.
    fn to_json(&self) -> Value {
        let defaults = SalesforceSettings::default();
        let mut first = json!({
            "salesforce": self.org.url(),
            "client_id": defaults.client_id,
            "client_secret": defaults.client_secret,
        });
        if let Some(sink) = &self.sink {
            first["sink"] = json!(sink.url());
        }
        if let Some(mail) = &self.mail {
            first["mail"] = json!(mail_url(mail));
        }
        if let Some(connector) = &self.connector {
            first["connector"] =
                json!({ "name": connector.name, "url": connector.sink.url(), "base_url": connector.base_url() });
            if let Some(token_url) = connector.token_url() {
                first["connector"]["token_url"] = json!(token_url);
            }
        }
        for (provider, sink) in &self.providers {
            first[provider.name()] = json!({ "url": sink.url() });
        }
        if let Some(endpoint) = self.push_endpoint() {
            first[Provider::WebPush.name()]["endpoint"] = json!(endpoint);
        }
        if let Some(slack) = &self.slack {
            let SlackSettings { token, channels, .. } = SlackSettings::default();
            first["slack"] = json!({
                "api": slack.api_url(),
                "token": token,
                "channels": channels,
                "webhook": slack.webhook_url(),
            });
        }
        if let Some(hubspot) = &self.hubspot {
            first["hubspot"] = json!({ "api": hubspot.url(), "token": HubspotSettings::default().token });
        }
        if let Some(openid) = &self.openid {
            let OpenIdSettings { client_id, client_secret, users, .. } = OpenIdSettings::default();
            let users: Vec<String> = users.into_iter().map(|user| user.login).collect();
            first["openid"] = json!({
                "issuer": openid.issuer(),
                "client_id": client_id,
                "client_secret": client_secret,
                "users": users,
            });
        }
        if !self.services.is_empty() {
            first["services"] = self.services.iter().map(RunningService::to_json).collect();
        }
        first
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
    /// Accepted messages, and those that were accepted more than once.
    mail: Option<(u64, u64)>,
    slack: Option<u64>,
    /// Records, and unique values under which more than one was created.
    hubspot: Option<(u64, u64)>,
    /// Requests to the provider of a connector, and those that it applied.
    connector: Option<(u64, u64)>,
    /// The same of S3, SES and the push service together.
    providers: Option<(u64, u64)>,
    /// Effects of services, and keys with more than one.
    services: Option<(u64, u64)>,
}

impl Counts {
    fn of(simulators: &Simulators) -> Counts {
        let Simulators { org, sink, mail, slack, hubspot, connector, providers, services, .. } = simulators;
        let truth = org.truth();
        let sum = |figure: fn(&sluice_simulator::crm::ObjectTruth) -> u64| truth.objects.values().map(figure).sum();
        Counts {
            calls: truth.calls.received,
            records: sum(|object| object.records),
            created: sum(|object| object.created),
            updated: sum(|object| object.updated),
            doubled: sum(|object| object.created_again),
            faults: truth.faults_total(),
            sink: sink.as_ref().map(Sink::truth).map(|truth| (truth.requests, truth.keys_applied_again)),
            mail: mail.as_ref().map(Smtp::truth).map(|truth| {
                let again = truth.by_message_id.values().map(|count| count.saturating_sub(1)).sum();
                (truth.accepted, again)
            }),
            slack: slack.as_ref().map(|slack| slack.truth().messages),
            hubspot: hubspot.as_ref().map(Hubspot::truth).map(|truth| {
                let objects = truth.objects.values();
                objects
                    .fold((0, 0), |(records, again), object| (records + object.records, again + object.created_again))
            }),
            connector: connector
                .as_ref()
                .map(|connector| connector.sink.truth())
                .map(|truth| (truth.requests, truth.applied)),
            providers: (!providers.is_empty()).then(|| {
                providers
                    .iter()
                    .map(|(_, sink)| sink.truth())
                    .fold((0, 0), |(requests, applied), truth| (requests + truth.requests, applied + truth.applied))
            }),
            services: sim_services::counts(services),
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
        if let Some((requests, doubled)) = self.sink {
            counts["sink"] = json!({ "requests": requests, "doubled": doubled });
        }
        if let Some((messages, doubled)) = self.mail {
            counts["mail"] = json!({ "messages": messages, "doubled": doubled });
        }
        if let Some((requests, applied)) = self.connector {
            counts["connector"] = json!({ "requests": requests, "applied": applied });
        }
        if let Some((requests, applied)) = self.providers {
            counts["providers"] = json!({ "requests": requests, "applied": applied });
        }
        if let Some(messages) = self.slack {
            counts["slack"] = json!({ "messages": messages });
        }
        if let Some((records, doubled)) = self.hubspot {
            counts["hubspot"] = json!({ "records": records, "doubled": doubled });
        }
        if let Some((effects, doubled)) = self.services {
            counts["services"] = json!({ "effects": effects, "doubled": doubled });
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
        if let Some((messages, doubled)) = self.mail {
            text.push_str(&format!("; mail: {}, {} doubled", plural(messages, "message"), grouped(doubled)));
        }
        if let Some((requests, applied)) = self.connector {
            text.push_str(&format!("; connector: {}, {} applied", plural(requests, "request"), grouped(applied)));
        }
        if let Some((requests, applied)) = self.providers {
            let requests = plural(requests, "request");
            text.push_str(&format!("; S3, SES and push: {requests}, {} applied", grouped(applied)));
        }
        if let Some(messages) = self.slack {
            text.push_str(&format!("; Slack: {}", plural(messages, "message")));
        }
        if let Some((records, doubled)) = self.hubspot {
            text.push_str(&format!("; HubSpot: {}, {} doubled", plural(records, "record"), grouped(doubled)));
        }
        if let Some((effects, doubled)) = self.services {
            text.push_str(&format!("; services: {}, {} doubled", plural(effects, "effect"), grouped(doubled)));
        }
        text
    }
}
