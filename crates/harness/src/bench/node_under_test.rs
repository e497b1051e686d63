//! The node under test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::NodeHost;
use crate::{Api, Child, Error, Leads, Memory};
use sluice_server::run::Node;

/// How long a node in this process may take to stop.
const STOP_MAX: Duration = Duration::from_secs(30);

/// A running node.
#[derive(Debug)]
pub(super) enum Subject {
    Process(Child),
    Here { node: Box<Node>, runtime: tokio::runtime::Runtime },
}

impl Subject {
    pub async fn start(home: &NodeHost, leads: &Leads, log: &Path) -> Result<Subject, Error> {
        match home {
            NodeHost::Process(program) => {
                Ok(Subject::Process(Child::start(program, &leads.config, &leads.data, log).await?))
            }
            NodeHost::Here => {
                let builder = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let runtime = builder.map_err(Error::io("a runtime"))?;
                let started = runtime.spawn(Node::start(leads.settings())).await;
                let node = Box::new(started.map_err(|error| Error::Wrong(error.to_string()))??);
                Ok(Subject::Here { node, runtime })
            }
        }
    }

    pub fn intake(&self) -> SocketAddr {
        match self {
            Subject::Process(child) => child.intake,
            Subject::Here { node, .. } => node.intake,
        }
    }

    pub fn api(&self) -> Api {
        match self {
            Subject::Process(child) => Api(child.admin),
            Subject::Here { node, .. } => Api(node.admin),
        }
    }

    /// Its memory; that of the whole process when it runs in this one.
    pub fn memory(&self) -> Memory {
        match self {
            Subject::Process(child) => child.memory(),
            Subject::Here { .. } => Memory::of(std::process::id()).unwrap_or_default(),
        }
    }

    /// Transactions and operations of the ledger so far.
    pub async fn commits(&self) -> Result<(u64, u64), Error> {
        let api = self.api();
        Ok((api.metric("sluice_ledger_commits").await?, api.metric("sluice_ledger_operations").await?))
    }

    pub async fn end(self) -> Result<(), Error> {
        match self {
            Subject::Process(child) => child.kill().await,
            Subject::Here { node, runtime } => {
                let _ = runtime.spawn(node.stop(STOP_MAX)).await;
                runtime.shutdown_background();
                Ok(())
            }
        }
    }
}
