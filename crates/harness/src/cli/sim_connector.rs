//! The provider of a declared connector, simulated with its recorded answers.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use sluice_server::cli::{CliError, exit};
use sluice_server::config::{self, ConnectorTests, ExpectedAnswer};
use sluice_server::recorded_answers::{self, RecordedRoute};
use sluice_simulator::sink::{BatchRoute, RecordedReply, SinkRoute, TokenPolicy};
use sluice_simulator::{FaultPlan, Sink, SinkSettings};

/// Calls after which a token expires, so that a run of some length sees it happen.
const TOKEN_USES_MAX: u64 = 100;

/// A running provider.
pub(super) struct ConnectorSimulator {
    pub(super) name: String,
    pub(super) sink: Sink,
    /// Path of the API.
    base_path: String,
    /// Path of the token endpoint, if it has one; `*` stands for any text.
    token_path: Option<String>,
}

impl ConnectorSimulator {
    /// The recorded answers of a connector that ships or that a configuration declares.
    pub(super) fn find(name: &str, declared_in: Option<&Path>) -> Result<ConnectorTests, CliError> {
        let (tests, problems) = match declared_in {
            Some(path) => {
                let files = config::read(path).map_err(|error| CliError::new(exit::USAGE, error.to_string()))?;
                config::own_tests(&files)
            }
            None => config::shipped_tests(),
        };
        if !problems.is_empty() {
            let advice = "`sluice connectors test` shows what is wrong";
            return Err(CliError::new(exit::USAGE, format!("the recorded answers cannot be read; {advice}")));
        }
        tests.into_iter().find(|tests| tests.connector.definition.name == name).ok_or_else(|| {
            let message =
                format!("no recorded answers of a connector `{name}`; `sluice connectors` lists those that ship");
            CliError::new(exit::USAGE, message)
        })
    }

    pub(super) fn start(
        tests: &ConnectorTests,
        listen: SocketAddr,
        faults: FaultPlan,
    ) -> io::Result<ConnectorSimulator> {
        let routes = recorded_answers::routes(tests).into_iter().map(route).collect();
        let tokens = recorded_answers::token_path(tests).map(|path| TokenPolicy { path, uses_max: TOKEN_USES_MAX });
        let settings = SinkSettings { listen, faults, routes, tokens, name: "connector", ..SinkSettings::default() };
        let token_path = settings.tokens.as_ref().map(|policy| policy.path.clone());
        let sink = Sink::start(settings)?;
        let base_path = recorded_answers::base_path(tests.connector);
        Ok(ConnectorSimulator { name: tests.connector.definition.name.clone(), sink, base_path, token_path })
    }

    /// Address of the token endpoint, if it has one.
    pub(super) fn token_url(&self) -> Option<String> {
        self.token_path.as_ref().map(|path| format!("{}{path}", self.sink.url()))
    }

    /// Value of `base_url:` of a destination that reaches it.
    pub(super) fn base_url(&self) -> String {
        format!("{}{}", self.sink.url(), self.base_path)
    }
}

fn route(route: RecordedRoute) -> SinkRoute {
    let RecordedRoute { method, path, answer, absent, batch } = route;
    let batch = batch.map(|(items, results)| BatchRoute { items, results });
    SinkRoute { method, path, reply: reply(answer), absent: absent.map(reply), batch }
}

fn reply(answer: ExpectedAnswer) -> RecordedReply {
    let body = match answer.body {
        Value::Null => String::new(),
        Value::String(text) => text,
        body => body.to_string(),
    };
    RecordedReply { status: answer.status, headers: answer.headers, body }
}
