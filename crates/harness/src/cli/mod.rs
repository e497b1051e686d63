//! The commands of the harness.
//!
//! They are grouped by their place among the commands of the program. The groups have no doc comments: clap would show
//! them as the description of the program.

mod bench;
mod chaos;
mod demo;
mod sim;
mod sim_connector;
mod sim_list;
mod sim_received;
mod sim_services;
mod simulate;

use clap::Subcommand;
use sluice_server::cli::CliError;

#[derive(Debug, Subcommand)]
pub enum SimulatorCommand {
    /// Run a simulated Salesforce, HubSpot, mail server and Slack that fail on order
    Sim(sim::SimArgs),
}

impl SimulatorCommand {
    pub fn run(self) -> Result<(), CliError> {
        let SimulatorCommand::Sim(command) = self;
        command.run()
    }
}

#[derive(Debug, Subcommand)]
pub enum TrialCommand {
    /// Measure a node on this machine against the machine's own limits
    Bench(bench::BenchArgs),
    /// The bare server of a bench
    #[command(name = crate::bench::BASELINE_COMMAND, hide = true)]
    BenchBaseline(bench::BenchBaselineArgs),
    /// Kill a node again and again under load and faults, then check that the books balance
    Chaos(chaos::ChaosArgs),
    /// A part of a chaos run
    #[command(name = crate::chaos::processes::COMMAND, hide = true)]
    ChaosPart(chaos::ChaosPartArgs),
    /// A node of a chaos run
    #[command(name = crate::chaos::NODE_COMMAND, hide = true)]
    ChaosNode(chaos::ChaosNodeArgs),
}

impl TrialCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self {
            TrialCommand::Bench(command) => command.run(),
            TrialCommand::BenchBaseline(command) => command.run(),
            TrialCommand::Chaos(command) => command.run(),
            TrialCommand::ChaosPart(command) => command.run(),
            TrialCommand::ChaosNode(command) => command.run(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum SimulationCommand {
    /// Run the engine against simulated senders, destinations, operators, disks and crashes
    Simulate(simulate::SimulateArgs),
    /// Watch a node at work: senders that repeat themselves, and a CRM that keeps failing
    Demo(demo::DemoArgs),
}

impl SimulationCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self {
            SimulationCommand::Simulate(command) => command.run(),
            SimulationCommand::Demo(command) => command.run(),
        }
    }
}
