//! Failure groups: dead letters by why they died, and what operators said about that.
//!
//! A group is changed in the commit in which a job becomes a dead letter or ceases to be one, so it needs no scan. It is resolved by
//! an operator and opens again by itself with the next dead letter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::job::JobId;
use crate::outcome::{Failure, FailureClass};
use crate::time::Time;

/// How long a group without dead letters is listed after its last one.
pub const EMPTY_KEPT: Duration = Duration::from_secs(90 * 86_400);

/// Names a group: `group_7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub i64);

impl GroupId {
    /// Reads `group_7` or `7`.
    pub fn parse(text: &str) -> Option<GroupId> {
        let text = text.trim();
        text.strip_prefix("group_").unwrap_or(text).parse().ok().filter(|id| *id > 0).map(GroupId)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group_{}", self.0)
    }
}

/// What dead letters are grouped by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    pub worker: Arc<str>,
    /// As stored: the name of a [`FailureClass`].
    pub class: &'static str,
    pub code: Arc<str>,
}

impl GroupKey {
    pub fn new(worker: &str, failure: &Failure) -> GroupKey {
        GroupKey { worker: worker.into(), class: failure.class.as_str(), code: failure.code.as_str().into() }
    }

    /// As stored. `None` if the class is unknown.
    pub fn stored(worker: &str, class: &str, code: &str) -> Option<GroupKey> {
        let class = FailureClass::parse(class)?.as_str();
        Some(GroupKey { worker: worker.into(), class, code: code.into() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// Nobody has looked at it yet, or it came back after it was resolved.
    Open,
    /// An operator handles it; further dead letters change nothing.
    Acknowledged,
    /// The cause is gone. The next dead letter opens the group again.
    Resolved,
}

impl GroupState {
    pub const ALL: [GroupState; 3] = [GroupState::Open, GroupState::Acknowledged, GroupState::Resolved];

    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupState::Open => "open",
            GroupState::Acknowledged => "acknowledged",
            GroupState::Resolved => "resolved",
        }
    }

    pub fn parse(word: &str) -> Option<GroupState> {
        GroupState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state after a further dead letter.
    pub fn after_failure(self) -> GroupState {
        match self {
            GroupState::Acknowledged => GroupState::Acknowledged,
            GroupState::Open | GroupState::Resolved => GroupState::Open,
        }
    }

    /// Whether an operator may bring a group from this state to that one. The same state again is allowed.
    pub fn may_become(self, next: GroupState) -> bool {
        !matches!((self, next), (GroupState::Resolved, GroupState::Acknowledged))
    }

    /// The verb of the audit trail.
    pub fn verb(self) -> &'static str {
        match self {
            GroupState::Open => "reopen",
            GroupState::Acknowledged => "acknowledge",
            GroupState::Resolved => "resolve",
        }
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Dead letters with one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureGroup {
    pub id: GroupId,
    pub key: GroupKey,
    pub state: GroupState,
    /// Dead letters now.
    pub count: u64,
    /// Dead letters ever: those that were replayed or dropped count too.
    pub total: u64,
    pub first_at: Time,
    pub last_at: Time,
    /// The newest dead letter.
    pub last_job: JobId,
    /// When the state began.
    pub changed_at: Time,
    /// Who set the state; empty if the ledger did.
    pub actor: String,
    pub reason: String,
}

impl FailureGroup {
    /// A group with its first dead letter.
    pub fn begun(id: GroupId, key: GroupKey, job: JobId, at: Time) -> FailureGroup {
        FailureGroup {
            id,
            key,
            state: GroupState::Open,
            count: 1,
            total: 1,
            first_at: at,
            last_at: at,
            last_job: job,
            changed_at: at,
            actor: String::new(),
            reason: String::new(),
        }
    }

    /// A further job has died of this.
    pub fn add(&mut self, job: JobId, at: Time) {
        (self.count, self.total) = (self.count + 1, self.total + 1);
        (self.last_at, self.last_job) = (self.last_at.max(at), job);
        let next = self.state.after_failure();
        if next != self.state {
            (self.state, self.changed_at) = (next, at);
            (self.actor, self.reason) = (String::new(), String::new());
        }
    }

    /// A dead letter was replayed, dropped or released. What operators said stays.
    pub fn remove(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// An operator sets the state. `false` if the state does not allow it; the same state again replaces actor and reason.
    pub fn mark(&mut self, state: GroupState, actor: &str, reason: &str, at: Time) -> bool {
        if !self.state.may_become(state) {
            return false;
        }
        if self.state != state {
            self.changed_at = at;
        }
        (self.state, self.actor, self.reason) = (state, actor.to_owned(), reason.to_owned());
        true
    }

    /// Whether the group is no longer listed.
    pub fn is_expired(&self, now: Time) -> bool {
        self.count == 0 && self.last_at < now - EMPTY_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> FailureGroup {
        let failure = Failure::new(FailureClass::Permanent, "STRING_TOO_LONG", "");
        FailureGroup::begun(GroupId(1), GroupKey::new("crm", &failure), JobId(1), Time(10))
    }

    #[test]
    fn resolved_group_opens_again_with_the_next_dead_letter() {
        let mut group = group();
        assert!(group.mark(GroupState::Resolved, "ann", "field is longer now", Time(20)));
        group.add(JobId(2), Time(30));
        assert_eq!((group.state, group.changed_at, group.actor.as_str()), (GroupState::Open, Time(30), ""));
        assert_eq!((group.count, group.total, group.first_at, group.last_at), (2, 2, Time(10), Time(30)));
    }

    #[test]
    fn acknowledged_group_stays_so_however_many_die() {
        let mut group = group();
        assert!(group.mark(GroupState::Acknowledged, "ann", "on it", Time(20)));
        group.add(JobId(2), Time(30));
        assert_eq!((group.state, group.actor.as_str(), group.changed_at), (GroupState::Acknowledged, "ann", Time(20)));
    }

    #[test]
    fn resolved_group_is_reopened_and_not_acknowledged() {
        let mut group = group();
        assert!(group.mark(GroupState::Resolved, "ann", "", Time(20)));
        assert!(!group.mark(GroupState::Acknowledged, "bob", "", Time(30)));
        assert!(group.mark(GroupState::Open, "bob", "not fixed", Time(30)));
        assert_eq!((group.state, group.actor.as_str()), (GroupState::Open, "bob"));
    }

    #[test]
    fn group_with_dead_letters_does_not_expire() {
        let mut group = group();
        let later = Time(11) + EMPTY_KEPT;
        assert!(!group.is_expired(later));
        group.remove();
        assert!(group.is_expired(later));
        assert!(!group.is_expired(Time(10) + EMPTY_KEPT));
    }

    #[test]
    fn names_read_back() {
        assert_eq!(GroupId::parse("group_7"), Some(GroupId(7)));
        assert_eq!(GroupId::parse("7"), Some(GroupId(7)));
        assert_eq!((GroupId::parse("group_0"), GroupId::parse("grp_1"), GroupId::parse("")), (None, None, None));
        for state in GroupState::ALL {
            assert_eq!(GroupState::parse(state.as_str()), Some(state));
        }
    }
}
