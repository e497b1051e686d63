//! Enrich: looks things up for runs, in database files and at destinations.
//!
//! In: lookups of runs.
//! Out: what was found, or why nothing was. An answer always comes, at the latest with the deadline of the lookup.
//! Touches: database files; connectors, pauses and revisions (read).
//! Never: the ledger; the state of a job; deciding what a failure means (that is `domain::enrich`).
//! If the process dies here: nothing was recorded, and the next run of the job makes the lookup again. The cache starts empty.

mod cache;
mod geo;
mod http;

use std::sync::Arc;

use sluice_domain::enrich::{Lookup, LookupResult};

use crate::clock::Clock;
use crate::pauses::AppliedPauses;
use crate::revisions::Revisions;
use geo::GeoDatabases;
pub(crate) use geo::{look_up_in_file, probe};
use http::HttpLookups;

/// Makes lookups. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lookups(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    revisions: Revisions,
    clock: Clock,
    databases: GeoDatabases,
    http: HttpLookups,
}

impl Lookups {
    pub fn new(revisions: Revisions, clock: Clock, paused: AppliedPauses) -> Lookups {
        let http = HttpLookups::new(revisions.clone(), clock.clone(), paused);
        Lookups(Arc::new(Inner { revisions, clock, databases: GeoDatabases::default(), http }))
    }

    /// Looks something up for a job that was accepted under this revision.
    pub async fn look_up(&self, lookup: Lookup, revision: &Arc<str>) -> LookupResult {
        let Inner { revisions, clock, databases, http } = &*self.0;
        match lookup {
            Lookup::Geo(lookup) => {
                let directory = revisions.current().config.directory.clone();
                databases.look_up(&directory, &lookup, clock.now()).await
            }
            Lookup::Http(lookup) => http.look_up(&lookup, revision).await,
        }
    }
}
