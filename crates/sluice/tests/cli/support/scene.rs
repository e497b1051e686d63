//! A node that has seen something, and the systems around it.

use sluice_simulator::{Fault, FaultPlan, Salesforce, SalesforceSettings, Sink, SinkSettings};

use super::{Up, Workplace};

/// What the node speaks to; it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Around {
    _crm: Salesforce,
    _hooks: Sink,
}

/// A node that has one lead done, one dead and one whose notice nobody knows the outcome of.
#[derive(Debug)]
pub(crate) struct Scene {
    pub workplace: Workplace,
    pub node: Up,
    pub around: Around,
}

pub(crate) fn scene() -> Scene {
    let (workplace, around) = place(FaultPlan::always(Fault::DropAfter));
    let node = workplace.up(&[]);
    for payload in ["lead", "broken", "tell"] {
        workplace.run(&["send", "website-leads", &format!("payloads/{payload}.txt")]).ok();
        // One after the other, so that the jobs have the same numbers each time.
        workplace.until_settled();
    }
    Scene { workplace, node, around }
}

/// A configuration for a CRM that works and a receiver of notices with these faults.
pub(crate) fn place(faults: FaultPlan) -> (Workplace, Around) {
    let crm = Salesforce::start(SalesforceSettings::default()).unwrap();
    let hooks = Sink::start(SinkSettings { faults, ..SinkSettings::default() }).unwrap();
    let workplace = Workplace::new(&crm.url(), &hooks.url());
    (workplace, Around { _crm: crm, _hooks: hooks })
}
