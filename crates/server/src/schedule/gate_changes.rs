//! Changes of gates: logged, counted, and an auth pause made durable.

use std::sync::Arc;

use sluice_domain::schedule::gate::GateChange;

use crate::observe::metrics::GateLabels;
use crate::pauses;
use crate::work::WorkContext;

pub(super) fn report(context: &Arc<WorkContext>, destination: Arc<str>, change: GateChange) {
    let name = match &change {
        GateChange::Opened(_) => "opened",
        GateChange::HalfOpen => "half_open",
        GateChange::Closed => "closed",
        GateChange::AuthPaused => "auth_paused",
    };
    let labels = GateLabels { destination: destination.to_string(), change: name.to_owned() };
    context.metrics.gates.get_or_create(&labels).inc();
    match change {
        GateChange::Opened(until) => {
            tracing::warn!(%destination, %until, "breaker open: the destination keeps failing and its jobs wait");
            let (safe_modes, now) = (context.safe_modes.clone(), context.clock.ledger_time());
            let workers = context.revisions.current().config.workers.values().cloned().collect();
            tokio::spawn(async move { safe_modes.breaker_opened(workers, &destination, now).await });
        }
        GateChange::HalfOpen => tracing::info!(%destination, "breaker half-open: sending one probe"),
        GateChange::Closed => tracing::info!(%destination, "breaker closed: the destination has recovered"),
        GateChange::AuthPaused => {
            tracing::error!(
                %destination,
                "the destination rejects the credentials and is paused; fix them, then run `sluice resume destination:{destination}`"
            );
            tokio::spawn(write_pause(context.clone(), destination));
        }
    }
}

async fn write_pause(context: Arc<WorkContext>, destination: Arc<str>) {
    let pause = pauses::of_unauthorized(&destination, context.clock.ledger_time());
    match context.ledger.pause(pause).await {
        Ok(()) => context.paused.insert(destination).await,
        Err(error) => {
            tracing::error!(%destination, %error, "the pause could not be written; it ends with this process")
        }
    }
}
