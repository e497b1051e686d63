//! The node under test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::NodeHost;
use crate::{Api, Error, Leads, Memory, NodeProcess, StartOptions};
use sluice_server::run::Node;

/// Shutdown timeout of a node in this process.
const STOP_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum NodeUnderTest {
    Process(NodeProcess),
    InProcess { node: Box<Node>, api: Api, runtime: tokio::runtime::Runtime },
}

impl NodeUnderTest {
    pub(super) async fn start(host: &NodeHost, leads: &Leads, log: &Path) -> Result<NodeUnderTest, Error> {
        NodeUnderTest::start_with(host, leads, log, StartOptions::default()).await
    }

    /// Starts a node that logs every stage of an event.
    pub(super) async fn start_logging(host: &NodeHost, leads: &Leads, log: &Path) -> Result<NodeUnderTest, Error> {
        NodeUnderTest::start_with(host, leads, log, StartOptions { log_level: "info", ..StartOptions::default() }).await
    }

    async fn start_with(
        host: &NodeHost,
        leads: &Leads,
        log: &Path,
        options: StartOptions<'_>,
    ) -> Result<NodeUnderTest, Error> {
        match host {
            NodeHost::Process(program) => {
                let node = NodeProcess::start(program, &leads.config, &leads.data, log, options).await?;
                Ok(NodeUnderTest::Process(node))
            }
            NodeHost::InProcess => {
                let builder = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let runtime = builder.map_err(Error::io("a runtime"))?;
                let started = runtime.spawn(Node::start(leads.settings())).await;
                let node = Box::new(started.map_err(|error| Error::Failed(error.to_string()))??);
                let api = Api::of_node(node.admin, &leads.data)?;
                Ok(NodeUnderTest::InProcess { node, api, runtime })
            }
        }
    }

    pub(super) fn intake(&self) -> SocketAddr {
        match self {
            NodeUnderTest::Process(child) => child.intake,
            NodeUnderTest::InProcess { node, .. } => node.intake,
        }
    }

    /// Address of its admin listener.
    pub(super) fn admin(&self) -> SocketAddr {
        match self {
            NodeUnderTest::Process(child) => child.admin,
            NodeUnderTest::InProcess { node, .. } => node.admin,
        }
    }

    pub(super) fn api(&self) -> Api {
        match self {
            NodeUnderTest::Process(child) => Api::with_token(child.admin, child.token.clone()),
            NodeUnderTest::InProcess { api, .. } => api.clone(),
        }
    }

    /// Memory of its process, which may be this one.
    pub(super) fn memory(&self) -> Memory {
        match self {
            NodeUnderTest::Process(child) => child.memory(),
            NodeUnderTest::InProcess { .. } => Memory::of(std::process::id()).unwrap_or_default(),
        }
    }

    /// Transactions and operations of the ledger so far.
    pub(super) async fn commits(&self) -> Result<(u64, u64), Error> {
        let api = self.api();
        Ok((api.metric("sluice_ledger_commits").await?, api.metric("sluice_ledger_operations").await?))
    }

    pub(super) async fn stop(self) -> Result<(), Error> {
        match self {
            NodeUnderTest::Process(child) => child.kill().await,
            NodeUnderTest::InProcess { node, runtime, .. } => {
                let _ = runtime.spawn(node.stop(STOP_MAX)).await;
                runtime.shutdown_background();
                Ok(())
            }
        }
    }
}
