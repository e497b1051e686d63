//! Failure groups: what is asked of the ledger about them.

use sluice_domain::failure_group::{FailureGroup, GroupId, GroupState};
use sluice_domain::time::Time;

/// Selects failure groups, the one with the newest dead letter first. An absent field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupQuery {
    pub state: Option<GroupState>,
    pub worker: Option<String>,
    pub code: Option<String>,
    /// Only groups that have dead letters now.
    pub with_dead_letters: bool,
    /// Only groups behind the one with this newest time and id.
    pub after: Option<(Time, GroupId)>,
    pub limit: u32,
}

impl GroupQuery {
    pub(crate) fn matches(&self, group: &FailureGroup) -> bool {
        self.state.is_none_or(|state| group.state == state)
            && self.worker.as_deref().is_none_or(|worker| *group.key.worker == *worker)
            && self.code.as_deref().is_none_or(|code| *group.key.code == *code)
            && (group.count > 0 || !self.with_dead_letters)
            && self.after.is_none_or(|after| (group.last_at, group.id) < after)
    }
}

/// An operator sets the state of a group.
#[derive(Clone, Debug)]
pub struct MarkGroup {
    pub group: GroupId,
    pub state: GroupState,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// The result of a [`MarkGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkedGroup {
    Done(FailureGroup),
    NotFound,
    /// The group is in this state, which does not allow the wanted one.
    Refused(GroupState),
}
