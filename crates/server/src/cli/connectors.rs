//! `sluice connectors`: declared connectors, those that ship and those of a configuration.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_domain::connector::{Connector, KeyType, RegisteredConnector};
use sluice_domain::failure_rules::{FailureAction, FailureRule};

use super::print::{self, heading, hint, plural};
use super::table::{Cell, Column, Table};
use super::{CliError, exit};
use crate::config::{self, Colours, ConnectorTests, Files, SHIPPED, did_you_mean};
use crate::recorded_answers::{self, AnswerReport};

/// List, show and test declared connectors
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice connectors\n  sluice connectors show twilio\n  sluice connectors show postmark --source\n  sluice connectors test\n  sluice connectors test ./config"
)]
pub struct ConnectorsCommand {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListConnectors,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List connectors and their actions
    List(ListConnectors),
    /// Show a connector: keys, actions, failure rules
    Show(ShowConnector),
    /// Run the recorded answers of connectors; nothing is sent
    Test(TestConnectors),
}

#[derive(Debug, clap::Args)]
struct ListConnectors {
    /// Also list the connectors of this configuration directory or file
    #[arg(long, env = "SLUICE_CONFIG", value_name = "DIR")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ShowConnector {
    /// Name of the connector
    name: String,
    /// Configuration directory or file that declares it
    #[arg(long, env = "SLUICE_CONFIG", value_name = "DIR")]
    config: Option<PathBuf>,
    /// Print the document of a connector that ships, as a start for your own
    #[arg(long, conflicts_with = "json")]
    source: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct TestConnectors {
    /// A connector that ships, or a configuration directory or file with connectors and recorded answers
    #[arg(value_name = "NAME|DIR")]
    of: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ConnectorsCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Test(test)) => test.run(),
        }
    }
}

fn read(path: &Path) -> Result<Files, CliError> {
    config::read(path).map_err(|error| CliError::new(exit::NO, error.to_string()))
}

fn connectors(path: Option<&Path>) -> Result<Vec<&'static RegisteredConnector>, CliError> {
    let files = path.map(read).transpose()?;
    Ok(config::available(files.as_ref()))
}

impl ListConnectors {
    fn run(self) -> Result<(), CliError> {
        let connectors = connectors(self.config.as_deref())?;
        if self.json {
            let list: Vec<Value> = connectors.iter().map(|connector| to_json(connector)).collect();
            return print::print(&print::pretty(&list));
        }
        let mut table = Table::new([
            Column::Whole("CONNECTOR"),
            Column::Whole("ACTION"),
            Column::Whole("EFFECT"),
            Column::Wrap("ABOUT"),
        ]);
        for connector in connectors {
            for action in connector.actions() {
                let definition = action.definition();
                table.row([
                    Cell::from(connector.definition.name.as_str()),
                    definition.name.as_str().into(),
                    definition.class.as_str().into(),
                    definition.about.as_str().into(),
                ]);
            }
        }
        print::print(&(table.render() + &hint("\nDetails: sluice connectors show NAME")))
    }
}

impl ShowConnector {
    fn run(self) -> Result<(), CliError> {
        let connectors = connectors(self.config.as_deref())?;
        let Some(connector) = connectors.iter().find(|connector| connector.definition.name == self.name) else {
            return Err(unknown(&self.name, &connectors));
        };
        if self.source {
            let file = SHIPPED.iter().find(|file| file.name == self.name);
            let text = file.map(|file| file.text.trim_end());
            let missing = || CliError::new(exit::NO, format!("`{}` is a document of the configuration", self.name));
            return print::print(text.ok_or_else(missing)?);
        }
        match self.json {
            true => print::json(&to_json(connector)),
            false => print::print(&render(connector)),
        }
    }
}

fn unknown(name: &str, connectors: &[&'static RegisteredConnector]) -> CliError {
    let near = did_you_mean(name, connectors.iter().map(|connector| connector.definition.name.as_str()));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`sluice connectors` lists them; --config DIR adds those of a configuration".to_owned(),
    };
    CliError::new(exit::NO, format!("unknown connector `{name}`; {hint}"))
}

fn key_type(kind: &KeyType) -> String {
    match kind {
        KeyType::Text => "text".to_owned(),
        KeyType::Secret => "secret".to_owned(),
        KeyType::Url => "URL".to_owned(),
        KeyType::OneOf(words) => words.join(", "),
    }
}

fn to_json(connector: &'static RegisteredConnector) -> Value {
    let definition = connector.definition;
    let keys: Vec<Value> = definition
        .keys
        .iter()
        .map(|key| {
            json!({
                "name": key.name, "type": key_type(&key.key_type), "required": key.required, "default": key.default,
                "about": key.about,
            })
        })
        .collect();
    let actions: Vec<Value> = connector
        .actions()
        .map(|action| {
            let parameters: Vec<Value> = action
                .spec()
                .parameters
                .iter()
                .map(|parameter| json!({ "name": parameter.name, "required": parameter.required, "about": parameter.about }))
                .collect();
            let definition = action.definition();
            json!({
                "name": definition.name, "about": definition.about, "effect": definition.class.as_str(),
                "because": definition.because, "sends_mail": definition.is_mail, "parameters": parameters,
            })
        })
        .collect();
    let failures: Vec<Value> = definition
        .failures
        .iter()
        .map(|rule| {
            json!({
                "status": rule.statuses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "code": rule.codes, "contains": rule.contains, "action": rule.action.as_str(), "advice": rule.advice,
            })
        })
        .collect();
    json!({
        "name": definition.name, "about": definition.about, "keys": keys, "actions": actions, "failures": failures,
    })
}

fn render(connector: &'static RegisteredConnector) -> String {
    let definition = connector.definition;
    let mut text = format!("{}\n{}\n", heading(&definition.name), definition.about);
    let mut keys =
        Table::new([Column::Whole("KEY"), Column::Whole("VALUE"), Column::Whole("REQUIRED"), Column::Wrap("ABOUT")]);
    for key in &definition.keys {
        let required = if key.required { "yes" } else { "" };
        keys.row([
            Cell::from(key.name.as_str()),
            key_type(&key.key_type).into(),
            required.into(),
            key.about.as_str().into(),
        ]);
    }
    text.push_str(&format!("\n{}\n{}", heading("Keys of a destination"), keys.render()));
    for action in connector.actions() {
        let definition = action.definition();
        text.push_str(&format!("\n\n{}\n{}\n", heading(&definition.name), definition.about));
        text.push_str(&format!("Effect {}: {}\n", definition.class.as_str(), definition.because));
        let mut table = Table::new([Column::Whole("PARAMETER"), Column::Whole("REQUIRED"), Column::Wrap("ABOUT")]);
        for parameter in action.spec().parameters {
            let required = if parameter.required { "yes" } else { "" };
            table.row([Cell::from(parameter.name), required.into(), parameter.about.into()]);
        }
        text.push_str(&table.render());
    }
    if !definition.failures.is_empty() {
        text.push_str(&format!("\n\n{}\n{}", heading("Failure rules"), failures(definition)));
    }
    text
}

/// `wait 30s`; the class of a dead letter is shown with the rules of a destination.
fn action(rule: &FailureRule) -> String {
    match rule.action {
        FailureAction::Wait(_) => rule.action.to_string(),
        action => action.as_str().to_owned(),
    }
}

fn failures(definition: &Connector) -> String {
    let mut table =
        Table::new([Column::Whole("STATUS"), Column::Wrap("CODE"), Column::Whole("ACTION"), Column::Wrap("ADVICE")]);
    for rule in &definition.failures {
        let statuses: Vec<String> = rule.statuses.iter().map(ToString::to_string).collect();
        let codes: Vec<&str> = rule.codes.iter().chain(&rule.contains).map(String::as_str).collect();
        table.row([
            Cell::from(statuses.join(", ")),
            codes.join(", ").into(),
            action(rule).into(),
            rule.advice.as_str().into(),
        ]);
    }
    table.render()
}

impl TestConnectors {
    fn run(self) -> Result<(), CliError> {
        let tests = self.tests()?;
        let reports: Vec<(&str, AnswerReport)> = tests
            .iter()
            .map(|tests| (tests.connector.definition.name.as_str(), recorded_answers::run(tests)))
            .collect();
        let failed = reports.iter().any(|(_, report)| !report.problems.is_empty());
        if self.json {
            let list: Vec<Value> = reports
                .iter()
                .map(|(name, report)| {
                    json!({
                        "connector": name, "cases": report.cases, "answers": report.answers, "problems": report.problems,
                    })
                })
                .collect();
            print::print(&print::pretty(&list))?;
        } else {
            let lines: Vec<String> = reports.iter().flat_map(|(name, report)| lines(name, report)).collect();
            print::print(&lines.join("\n"))?;
        }
        if failed { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }

    fn tests(&self) -> Result<Vec<ConnectorTests>, CliError> {
        let named = self.of.as_deref().filter(|of| SHIPPED.iter().any(|file| file.name == *of));
        let path = self.of.as_deref().filter(|_| named.is_none()).map(Path::new);
        let (mut tests, problems, files) = match path {
            Some(path) if !path.exists() => {
                return Err(unknown(&path.to_string_lossy(), config::shipped()));
            }
            Some(path) => {
                let files = read(path)?;
                let (tests, problems) = config::own_tests(&files);
                (tests, problems, files)
            }
            None => {
                let (tests, problems) = config::shipped_tests();
                (tests, problems, Files::default())
            }
        };
        if !problems.is_empty() {
            let text = config::render_all(&problems, &files, Colours::Ansi);
            return Err(CliError::new(exit::NO, text.trim_end()));
        }
        if let Some(name) = named {
            tests.retain(|tests| tests.connector.definition.name == name);
        }
        if tests.is_empty() {
            let message = "no recorded answers; add a document with `answers:` and the name of a connector";
            return Err(CliError::new(exit::NO, message));
        }
        Ok(tests)
    }
}

fn lines(name: &str, report: &AnswerReport) -> Vec<String> {
    let counts = format!("{}, {}", plural(report.cases as u64, "case"), plural(report.answers as u64, "answer"));
    match report.problems.is_empty() {
        true => vec![format!("{name}: ok ({counts})")],
        false => [format!("{name}: {} ({counts})", plural(report.problems.len() as u64, "problem"))]
            .into_iter()
            .chain(report.problems.iter().map(|problem| format!("  {problem}")))
            .collect(),
    }
}
