//! What contacts cost: two nodes in turns, one of which keeps them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sluice_simulator::load::{Counter, CounterSettings};

use super::node_under_test::NodeUnderTest;
use super::phases::UNUSED_URL;
use super::report::{Contacts, WithAndWithout};
use super::workload::Workload;
use super::{Bench, Error, ROUNDS, WARM_UP};
use crate::{Leads, LeadsTo};

/// Whether a node keeps contacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Events,
    Contacts,
}

/// A node that takes turns.
struct Side<'a> {
    intake: SocketAddr,
    /// Where its effects are counted; `None` if none are applied.
    sink: Option<&'a Counter>,
    accepted: u64,
    /// Of the measured rounds.
    measured: u64,
    elapsed: Duration,
}

impl<'a> Side<'a> {
    fn new(node: &NodeUnderTest, sink: Option<&'a Counter>) -> Side<'a> {
        Side { intake: node.intake(), sink, accepted: 0, measured: 0, elapsed: Duration::ZERO }
    }

    fn per_second(&self) -> f64 {
        self.measured as f64 / self.elapsed.as_secs_f64()
    }
}

impl Bench {
    pub(super) async fn contacts(&self) -> Result<Contacts, Error> {
        let sample = Leads::write(&self.path("contacts-sample"), LeadsTo::Sink(UNUSED_URL))?;
        let workload = Workload::of_new_persons(sample.sender()?, self.settings.body_bytes)?;
        self.status.show("accept without and with contacts, in turns …");
        let without = self.accepting("contacts-accept-without", Keeps::Events).await?;
        let with = self.accepting("contacts-accept-with", Keeps::Contacts).await?;
        let accept = self.turns(&workload, [Side::new(&without, None), Side::new(&with, None)]).await?;
        let memory = with.memory();
        without.stop().await?;
        with.stop().await?;
        self.status.show("end to end without and with contacts, in turns …");
        let sinks = [(); 2].map(|()| Counter::start(CounterSettings::default()).map_err(Error::io("the sink")));
        let [first, second] = sinks;
        let (first, second) = (first?, second?);
        let without = self.working("contacts-e2e-without", &first, Keeps::Events).await?;
        let with = self.working("contacts-e2e-with", &second, Keeps::Contacts).await?;
        let sides = [Side::new(&without, Some(&first)), Side::new(&with, Some(&second))];
        let end_to_end = self.turns(&workload, sides).await?;
        let memory = memory.then(with.memory());
        without.stop().await?;
        with.stop().await?;
        Ok(Contacts { accept, end_to_end, memory })
    }

    /// A node that only accepts: its destination is paused.
    async fn accepting(&self, name: &str, keeps: Keeps) -> Result<NodeUnderTest, Error> {
        let leads = written(Leads::write(&self.path(name), LeadsTo::Sink(UNUSED_URL))?, keeps)?;
        self.prepare_ledger(&leads, 0).await?;
        NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await
    }

    async fn working(&self, name: &str, sink: &Counter, keeps: Keeps) -> Result<NodeUnderTest, Error> {
        let leads = written(Leads::write(&self.path(name), LeadsTo::Sink(&sink.url()))?, keeps)?;
        NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await
    }

    /// Warms both up, then alternates between them. A round ends when its effects are applied.
    async fn turns(&self, workload: &Workload, mut sides: [Side<'_>; 2]) -> Result<WithAndWithout, Error> {
        for round in 0..=ROUNDS {
            let time = match round {
                0 => self.settings.time.mul_f64(WARM_UP),
                _ => self.settings.time / ROUNDS,
            };
            for side in &mut sides {
                let started = Instant::now();
                let loaded = self.send_of(workload, side.intake, u64::MAX, time).await?.answered();
                side.accepted += loaded;
                if let Some(sink) = side.sink {
                    self.drained(sink, side.accepted).await?;
                }
                if round > 0 {
                    side.measured += loaded;
                    side.elapsed += started.elapsed();
                }
            }
        }
        let [without, with] = sides;
        Ok(WithAndWithout { without_per_second: without.per_second(), with_per_second: with.per_second() })
    }
}

fn written(leads: Leads, keeps: Keeps) -> Result<Leads, Error> {
    if keeps == Keeps::Contacts { leads.keep_contacts() } else { Ok(leads) }
}
