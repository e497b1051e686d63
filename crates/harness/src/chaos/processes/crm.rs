//! The CRM as a process of its own. Its truth is asked over HTTP, at `/sim/…`, as that of `sluice sim` is.

use serde::{Deserialize, Serialize};
use sluice_simulator::{FaultPlan, Salesforce, SalesforceSettings};

use super::{Listening, Orders, report};
use crate::Error;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    pub faults: FaultPlan,
    /// So many calls are remembered: every one of them is accounted for at the end.
    pub calls_kept_max: usize,
}

pub(super) async fn play(mut orders: Orders) -> Result<(), Error> {
    let Task { faults, calls_kept_max } = orders.task().await?;
    let settings = SalesforceSettings { faults, calls_kept_max, ..SalesforceSettings::default() };
    let crm = Salesforce::start(settings).map_err(Error::io("the simulated CRM"))?;
    report(&Listening { address: crm.address() })?;
    // Nothing is ever ordered: it works until the director is gone.
    std::future::pending().await
}
