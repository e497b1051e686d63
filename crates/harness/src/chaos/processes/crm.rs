//! The simulated CRM. What it holds is read over HTTP, at `/sim/…`, as with `sluice sim`.

use serde::{Deserialize, Serialize};
use sluice_simulator::{FaultPlan, Salesforce, SalesforceSettings};

use super::{Commands, Listening, report};
use crate::Error;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    pub faults: FaultPlan,
    /// Calls that it keeps; the report accounts for each.
    pub calls_kept_max: usize,
}

pub(super) async fn run(mut commands: Commands) -> Result<(), Error> {
    let Task { faults, calls_kept_max } = commands.task().await?;
    let settings = SalesforceSettings { faults, calls_kept_max, ..SalesforceSettings::default() };
    let crm = Salesforce::start(settings).map_err(Error::io("the simulated CRM"))?;
    report(&Listening { address: crm.address() })?;
    // No commands follow: it serves until the controller is gone.
    std::future::pending().await
}
