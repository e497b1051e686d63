//! A configuration that takes leads in and brings them somewhere, and a sender that it believes.

use std::path::{Path, PathBuf};

use sluice_domain::flow::Flow;
use sluice_domain::verify::{self, UnsignedRequest};

use super::{ANY_PORT, Error};
use crate::live::Live;
use crate::run::{self, Settings};
use crate::{intake, maintain};

const FLOW: &str = "website-leads";
const PATH: &str = "/in/website";

/// Where the leads go.
#[derive(Clone, Copy, Debug)]
pub enum LeadsTo<'a> {
    /// One record for each, in a CRM that fails much and often.
    Salesforce {
        /// Where it listens.
        url: &'a str,
        /// How patient the workers are with it.
        patience: Patience,
    },
    /// One `PUT` for each, to a server that does not fail.
    Sink {
        /// Where it listens.
        url: &'a str,
    },
}

/// How a worker treats a CRM that keeps failing.
pub use sluice_domain::unit::format_duration as _;

/// What is written down.
#[derive(Clone, Debug)]
pub struct Given {
    /// The directory of the configuration.
    pub config: PathBuf,
    /// The directory of the ledger.
    pub data: PathBuf,
}
