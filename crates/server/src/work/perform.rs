//! Performs the commands of a run on the ledger and the connectors.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::job::JobId;
use sluice_domain::ops::{ChargeResult, DecideApproval};
use sluice_domain::run::{Command, DeadLetters, GroupCommand, GroupInput, Input, Requeue, Settle};
use sluice_ledger::{Acceptance, NewEvent, PauseRecord, Replay};

use super::{Member, WorkContext, call, dead_letters, telemetry};
use crate::pauses;

/// Pause before a settlement is tried again on a full disk.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);

type Performed = Result<Input, sluice_ledger::Error>;

/// Performs one command of a group. The error names the members whose command it was.
pub(super) async fn perform(
    context: &WorkContext,
    members: Vec<Member>,
    command: GroupCommand,
) -> Result<GroupInput, (Vec<usize>, sluice_ledger::Error)> {
    let performed = match command {
        GroupCommand::Call(_, batch) => call::call(context, &members, batch).await.map(GroupInput::Called),
        GroupCommand::Member(index, command) => {
            let input = Box::pin(perform_one(context, &members, command)).await;
            input.map(|input| GroupInput::Member(index, input))
        }
    };
    performed.map_err(|error| (members.iter().map(|member| member.index).collect(), error))
}

/// Performs a command of one member. [`Command::Finish`] has no answer; the group itself makes calls and answers offers.
async fn perform_one(context: &WorkContext, members: &[Member], command: Command) -> Performed {
    let ledger = &context.ledger;
    Ok(match command {
        Command::Settle(settle) => Input::Settled(write(context, *settle).await?),
        Command::Begin { begin, caps } => Input::Begun(ledger.begin(*begin, caps).await?),
        Command::ReadRecord { job, identity } => Input::Record(ledger.remembered_record(job, identity).await?),
        Command::ReadBack(read) => call::read_back(context, members, *read).await,
        Command::Skip(skip) => Input::Skipped(ledger.skip(*skip).await?),
        Command::ReadContactFacts { contact, channel, purposes } => {
            Input::ContactFacts(ledger.contact_facts(contact, channel, purposes).await?)
        }
        Command::ReadContact { seq, slot } => Input::Contact(ledger.contact_of_event(seq, slot).await?.map(Box::new)),
        Command::ReadCapUsed(cap) => Input::CapUsed(ledger.cap_used(cap, context.clock.ledger_time()).await?),
        Command::RecordStep(result) => Input::Recorded(ledger.record_step(*result).await?),
        Command::SetMark(mark) => Input::Marked(ledger.set_mark(*mark).await?),
        Command::SetConsent(consent) => {
            ledger.set_consent(consent).await?;
            Input::Done
        }
        Command::RequestApproval(request) => Input::Approval(ledger.request_approval(*request).await?.map(Box::new)),
        Command::ExpireApproval(decide) => return expire_approval(context, *decide).await,
        Command::PullDeadLetters { queue, limit, replays_max } => {
            return pull(context, &queue, limit, replays_max).await;
        }
        Command::ReadMessages(jobs) => Input::Messages(dead_letters::messages(ledger, jobs).await?),
        Command::ReadJobIn { job, queue } => {
            let found = ledger.job(job).await?.filter(|job| *job.queue == *queue);
            Input::JobIn(found.map(|job| job.state))
        }
        Command::Requeue { job, actor } => return requeue(context, job, actor).await,
        Command::Accept(event) => return accept(context, *event).await,
        Command::LookUp(lookup) => {
            let revision = members.first().map(|member| member.revision.clone()).unwrap_or_default();
            Input::LookedUp(Box::new(context.lookups.look_up(*lookup, &revision).await))
        }
        Command::Call(_) | Command::Offer(_) | Command::Finish(_) => Input::Done,
    })
}

/// Writes the end of a run. What was done must not be forgotten: on a full disk the job keeps its slot and its lane until
/// there is room to write it.
async fn write(context: &WorkContext, settle: Settle) -> Result<ChargeResult, sluice_ledger::Error> {
    loop {
        match context.ledger.settle(settle.clone()).await {
            Err(sluice_ledger::Error::DiskFull) => tokio::time::sleep(DISK_FULL_PAUSE).await,
            other => return other,
        }
    }
}

async fn expire_approval(context: &WorkContext, decide: DecideApproval) -> Performed {
    let id = decide.ids.first().copied();
    context.ledger.decide_approval(decide).await?;
    let approval = match id {
        Some(id) => context.ledger.approval(id).await?,
        None => None,
    };
    Ok(Input::Approval(approval.map(Box::new)))
}

async fn pull(context: &WorkContext, queue: &str, limit: usize, replays_max: u32) -> Performed {
    Ok(Input::DeadLetters(match replays_paused(context).await? {
        Some(why) => DeadLetters::Paused(why),
        None => DeadLetters::Found(dead_letters::pull(&context.ledger, queue, limit, replays_max).await?),
    }))
}

async fn requeue(context: &WorkContext, job: JobId, actor: String) -> Performed {
    if let Some(why) = replays_paused(context).await? {
        return Ok(Input::Requeued(Requeue::Paused(why)));
    }
    let replay = Replay {
        jobs: vec![job],
        actor,
        reason: "scheduled replay".to_owned(),
        revision: None,
        at: context.clock.ledger_time(),
    };
    let requeued = context.ledger.replay(replay).await?;
    let any = !requeued.is_empty();
    (context.on_requeued.0)(requeued);
    Ok(Input::Requeued(Requeue::Requeued(any)))
}

/// Why nothing is replayed now, as the result of the job that asked.
async fn replays_paused(context: &WorkContext) -> Result<Option<Value>, sluice_ledger::Error> {
    let why = |pause: &PauseRecord| json!({ "noop": "replays are paused", "since": pause.at, "reason": pause.reason });
    Ok(pauses::of_replays(&context.ledger.pauses().await?).map(why))
}

async fn accept(context: &WorkContext, event: NewEvent) -> Performed {
    let traced = context.metrics.traces.is_on().then(|| event.clone());
    Ok(match context.ledger.accept(event).await? {
        Acceptance::Accepted(accepted) => {
            if let Some(event) = traced {
                telemetry::emitted(context, &event, accepted.id);
            }
            Input::Accepted { id: accepted.id, new: true }
        }
        Acceptance::Duplicate(first) => Input::Accepted { id: first.id, new: false },
        // A step brings no proof of a sender.
        Acceptance::ProofUsed => Input::Done,
    })
}
