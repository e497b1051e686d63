//! A run of several jobs with one slot: their calls share a request where their batch form allows it.
//!
//! Each job is driven by its own [`JobRun`] through its own commands until it wants to call the destination, ends or waits. When
//! every job has come that far, one request is made: for the first job that wants to call, and for all others whose calls may be in
//! the same request. The rest is released: those jobs have changed nothing at the destination, and wait for the next slot. So one
//! slot is one call, whatever the jobs are.
//!
//! From there each job continues on its own: its intent, its outcome, its settlement.

use std::sync::Arc;

use serde_json::Value;

use super::item::StepItem;
use super::{
    BatchItem, CallBatch, Command, Input, JobRun, LoadedJob, OfferAnswer, Recording, RunConfig, RunContext, RunResult,
    StepCall, Waiting,
};
use crate::hash::Set;
use crate::job::JobState;
use crate::mutant::Mutant;
use crate::outcome::{FailureClass, Outcome};
use crate::policy::CapReservation;

/// What a job of a group wants to do at the destination.
#[derive(Debug)]
pub(super) enum Offer {
    Call(StepItem, Value, Vec<CapReservation>),
    ReadBack(StepItem, Value),
}

impl JobRun {
    /// Calls or reads back; in a group, once the group has chosen this job.
    pub(super) fn offer(&mut self, offer: Offer, context: RunContext) -> Command {
        if !self.is_in_group {
            return self.take_up(offer, context);
        }
        let item = match &offer {
            Offer::Call(item, with, _) => self.batch_item(item, with),
            Offer::ReadBack(..) => None,
        };
        self.waiting = Waiting::Offered(Box::new(offer));
        Command::Offer(item)
    }

    fn batch_item(&self, item: &StepItem, with: &Value) -> Option<BatchItem> {
        let step = item.step();
        let form = step.batch.as_ref()?;
        // Connectors of two revisions may differ.
        let key = [&*self.job.revision, step.action.name(), &form.shared(with)].join(" ");
        let identity = form.identity(with).unwrap_or_else(|| format!("job {}", self.job.id.0));
        Some(BatchItem { max: form.max as usize, key, identity })
    }

    pub(super) fn offer_answered(&mut self, offer: Offer, answer: OfferAnswer, context: RunContext) -> Command {
        match answer {
            OfferAnswer::Taken => self.take_up(offer, context),
            OfferAnswer::Released { alone } => {
                Command::Finish(Box::new(RunResult::Released { job: self.job.clone(), alone }))
            }
        }
    }

    fn take_up(&mut self, offer: Offer, context: RunContext) -> Command {
        match offer {
            Offer::Call(item, with, caps) => self.begin(item, with, caps, context),
            Offer::ReadBack(item, with) => self.read_back(item, with, context),
        }
    }
}

/// What to do next for a group. Commands of different members may be performed at once.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// A command of one member. Answer: [`GroupInput::Member`]; none to [`Command::Finish`].
    Member(usize, Command),
    /// Call the destination for these members. Answer: [`GroupInput::Called`].
    Call(Vec<usize>, CallBatch),
}

/// The answer to a [`GroupCommand`].
#[derive(Clone, Debug)]
pub enum GroupInput {
    Member(usize, Input),
    /// For each call of the batch, in their order: its outcome, and whether its intent was submitted before.
    Called(Vec<(Outcome, bool)>),
    /// A command of these members could not be performed: their runs have ended without a result.
    Lost(Vec<usize>),
}

/// Where a member stands.
#[derive(Debug)]
enum MemberState {
    /// A command is being performed; what follows is not known.
    Busy,
    /// It will not call the destination any more.
    Leaving,
    Offered(Option<BatchItem>),
    /// Its intent is recorded as far as it has to be.
    Calling(Box<StepCall>, Recording),
    Called,
}

#[derive(Debug)]
struct Member {
    run: Box<JobRun>,
    state: MemberState,
}

/// One run of several jobs of one worker and destination.
#[derive(Debug)]
pub struct GroupRun {
    members: Vec<Member>,
    /// Whether the members of the request are chosen.
    is_chosen: bool,
    /// Members whose call is under way, in the order of the calls.
    called: Vec<usize>,
}

impl GroupRun {
    /// Starts a run with one slot of `destination`. A job alone is never released.
    pub fn start(
        jobs: Vec<(LoadedJob, RunConfig)>,
        destination: &Arc<str>,
        context: RunContext,
    ) -> (GroupRun, Vec<GroupCommand>) {
        let is_in_group = jobs.len() > 1;
        let mut group = GroupRun { members: Vec::with_capacity(jobs.len()), is_chosen: !is_in_group, called: vec![] };
        let mut commands = Vec::with_capacity(jobs.len());
        for (member, (loaded, config)) in jobs.into_iter().enumerate() {
            let (run, command) = JobRun::start_in(is_in_group, loaded, destination.clone(), config, context);
            group.members.push(Member { run, state: MemberState::Busy });
            group.take(member, command, &mut commands);
        }
        group.proceed(context, &mut commands);
        (group, commands)
    }

    pub fn step(&mut self, context: RunContext, input: GroupInput) -> Vec<GroupCommand> {
        let mut commands = Vec::new();
        match input {
            GroupInput::Member(member, input) => self.answer(member, input, context, &mut commands),
            GroupInput::Called(outcomes) => self.answered(outcomes, context, &mut commands),
            GroupInput::Lost(members) => {
                for member in members {
                    self.members[member].state = MemberState::Leaving;
                }
            }
        }
        self.proceed(context, &mut commands);
        commands
    }

    /// The run of one member.
    pub fn member(&self, member: usize) -> &JobRun {
        &self.members[member].run
    }

    pub fn member_mut(&mut self, member: usize) -> &mut JobRun {
        &mut self.members[member].run
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn answer(&mut self, member: usize, input: Input, context: RunContext, commands: &mut Vec<GroupCommand>) {
        let command = self.members[member].run.step(context, input);
        self.take(member, command, commands);
    }

    /// Takes the next command of a member: it is kept where the group decides, and passed on otherwise.
    fn take(&mut self, member: usize, command: Command, commands: &mut Vec<GroupCommand>) {
        let state = &mut self.members[member].state;
        match command {
            Command::Offer(item) => *state = MemberState::Offered(item),
            Command::Call(mut batch) => match (batch.calls.pop(), batch.recording.pop()) {
                (Some(call), Some(recording)) => *state = MemberState::Calling(Box::new(call), recording),
                _ => *state = MemberState::Leaving,
            },
            command => {
                let leaves = matches!(command, Command::Settle(_) | Command::Skip(_) | Command::Finish(_));
                *state = if leaves { MemberState::Leaving } else { MemberState::Busy };
                commands.push(GroupCommand::Member(member, command));
            }
        }
    }

    /// Chooses the members of the request, then makes it, each as soon as no member can join any more.
    fn proceed(&mut self, context: RunContext, commands: &mut Vec<GroupCommand>) {
        if !self.is_chosen && !self.is_busy() {
            self.is_chosen = true;
            self.choose(context, commands);
        }
        if self.is_chosen && !self.is_busy() {
            self.call(context, commands);
        }
    }

    fn is_busy(&self) -> bool {
        self.members.iter().any(|member| matches!(member.state, MemberState::Busy))
    }

    /// The first member that wants to call, with those that may be in its request; the others are released.
    fn choose(&mut self, context: RunContext, commands: &mut Vec<GroupCommand>) {
        let mut first: Option<Option<BatchItem>> = None;
        let mut identities = Set::default();
        for member in 0..self.members.len() {
            let state = &mut self.members[member].state;
            let MemberState::Offered(item) = state else { continue };
            let item = item.take();
            let alone = item.is_none();
            let is_taken = match (&first, &item) {
                (None, _) => true,
                (Some(Some(first)), Some(item)) => {
                    let is_new = !identities.contains(&item.identity) || Mutant::EqualIdentitiesInOneBatch.is_on();
                    item.key == first.key && is_new && identities.len() < first.max
                }
                _ => false,
            };
            if is_taken {
                identities.extend(item.as_ref().map(|item| item.identity.clone()));
                first.get_or_insert(item);
            }
            let answer = if is_taken { OfferAnswer::Taken } else { OfferAnswer::Released { alone } };
            self.answer(member, Input::Offer(answer), context, commands);
        }
    }

    fn call(&mut self, context: RunContext, commands: &mut Vec<GroupCommand>) {
        let mut batch = CallBatch { calls: vec![], recording: vec![] };
        let mut members = vec![];
        for (index, member) in self.members.iter_mut().enumerate() {
            if !matches!(member.state, MemberState::Calling(..)) {
                continue;
            }
            if let MemberState::Calling(call, recording) = std::mem::replace(&mut member.state, MemberState::Called) {
                member.run.call_started = Some(context.now);
                batch.calls.push(*call);
                batch.recording.push(recording);
                members.push(index);
            }
        }
        if !members.is_empty() {
            self.called.clone_from(&members);
            commands.push(GroupCommand::Call(members, batch));
        }
    }

    /// The request was answered, or was not in time.
    fn answered(&mut self, outcomes: Vec<(Outcome, bool)>, context: RunContext, commands: &mut Vec<GroupCommand>) {
        let members = std::mem::take(&mut self.called);
        let (mut outcomes, recorded): (Vec<Outcome>, Vec<bool>) = outcomes.into_iter().unzip();
        if members.len() > 1 {
            spare_others(&mut outcomes);
            mutate(&mut outcomes);
        }
        for ((member, outcome), recorded) in members.into_iter().zip(outcomes).zip(recorded) {
            self.answer(member, Input::Called { outcome, recorded }, context, commands);
        }
    }
}

/// Rejected credentials end one job: the destination is paused, and the others wait for it.
fn spare_others(outcomes: &mut [Outcome]) {
    let mut is_first = true;
    for outcome in outcomes {
        if let Outcome::Reject { failure } = outcome
            && failure.class == FailureClass::Auth
            && !std::mem::replace(&mut is_first, false)
        {
            *outcome = Outcome::Wait { failure: failure.clone(), after: None };
        }
    }
}

fn mutate(outcomes: &mut [Outcome]) {
    if Mutant::LostBatchAnswerMeansDone.is_on() {
        for outcome in outcomes.iter_mut().filter(|outcome| matches!(outcome, Outcome::Unsure { .. })) {
            *outcome = Outcome::Done { result: Value::Bool(true) };
        }
    }
    if Mutant::OneRejectionFailsTheBatch.is_on()
        && let Some(rejected) = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Reject { .. })).cloned()
    {
        outcomes.fill(rejected);
    }
}

impl JobRun {
    fn start_in(
        is_in_group: bool,
        loaded: LoadedJob,
        destination: Arc<str>,
        config: RunConfig,
        context: RunContext,
    ) -> (Box<JobRun>, Command) {
        let mut run = JobRun::new(loaded, destination, config);
        run.is_in_group = is_in_group && run.job.state != JobState::Running;
        let command = run.begin_run(context);
        (run, command)
    }
}
