//! `sluice demo`: a node with senders and a failing CRM, without any setup.

use std::time::Duration;

use sluice_server::cli::{CliError, Stop, exit};

use crate::StatusLine;
use crate::demo::{Addresses, Demo as RunningDemo, DemoSettings};

/// Watch a node at work: senders that repeat themselves, and a CRM that keeps failing
#[derive(Debug, clap::Args)]
#[command(after_help = "Everything runs in this process, on loopback, with a temporary ledger. Stop it with Ctrl-C.")]
pub struct DemoArgs {
    /// Stop the senders after this time; until Ctrl-C when left out
    #[arg(long = "for", value_name = "TIME", value_parser = sluice_server::cli::duration)]
    time: Option<Duration>,
    /// New leads a second; each is sent one to five times
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// The share of calls that the CRM lets fail, in percent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u8).range(0..=90))]
    fail: u8,
    /// Repeats a run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl DemoArgs {
    pub fn run(self) -> Result<(), CliError> {
        let failed =
            |error: &dyn std::fmt::Display| CliError::new(exit::UNAVAILABLE, format!("the demo failed: {error}"));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| failed(&error))?;
        let settings =
            DemoSettings { leads_per_second: self.rate, fail_percent: f64::from(self.fail), seed: self.seed };
        runtime.block_on(async {
            let demo = RunningDemo::start(settings).await.map_err(|error| failed(&error))?;
            let Addresses { intake, admin, data, crm, console } = &demo.addresses;
            anstream::println!(
                "Web forms send leads to   {intake}/in/website (each lead one to five times, out of order, in bursts)\n\
                 A CRM that fails on {}% of calls is at   {crm} (look at {crm}/sim/truth)\n\
                 Watch it in the console:   {console} (signs you in once)\n\
                 Ask it in another terminal:   sluice status --data {data} (and every other command)\n\
                 The admin API is at   {admin}/api/v1/status (described at {admin}/openapi.json; its token is in {token})\n",
                self.fail,
                data = data.display(),
                token = data.join(sluice_server::admin_token::FILE).display()
            );
            let mut stop = Stop::listen()?;
            let end = async {
                let time = async {
                    match self.time {
                        Some(time) => tokio::time::sleep(time).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = time => {}
                    () = stop.asked() => {}
                }
            };
            let status = StatusLine::new();
            let result =
                demo.run(end, |counts| status.show(&counts.to_string())).await.map_err(|error| failed(&error))?;
            status.clear();
            anstream::println!("\n{result}");
            if result.problems.is_empty() {
                Ok(())
            } else {
                Err(CliError::new(exit::NO, "not every lead is in the CRM exactly once"))
            }
        })
    }
}
