//! The contact of an event, by its identifiers. Nothing is guessed: an identifier that belongs to another contact is kept apart and
//! shown as a conflict.

use serde::{Deserialize, Serialize};

use super::{Conflict, ContactId, ContactState, IDENTITY_CONFLICT, OnConflict};
use crate::key::KeyDigest;
use crate::mutant::Mutant;
use crate::outcome::{Failure, FailureClass};

/// An identifier of an event. The value itself is not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identifier {
    /// Such as `email`, or `external_id of shop`.
    pub kind: String,
    pub digest: KeyDigest,
    /// A contact has at most one of this kind.
    pub single: bool,
}

/// The contact that an identifier belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub contact: ContactId,
    /// The contact that it is merged into; itself if it is not.
    pub root: ContactId,
}

impl Owner {
    /// The contact whose lane the jobs of this one run in: contacts that are merged have one lane, so that their jobs keep one
    /// order.
    pub fn lane(self) -> ContactId {
        match Mutant::MergeLosesLane.is_on() {
            true => self.contact,
            false => self.root,
        }
    }
}

/// Which contact an event belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// `None` for a new contact.
    pub owner: Option<Owner>,
    /// Identifiers that become the contact's, by their place in the list.
    pub links: Vec<usize>,
    /// Identifiers that are kept apart.
    pub conflicts: Vec<Conflict>,
}

/// An event that is quarantined because its identifiers conflict. Nothing is linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub failure: Failure,
    /// The contact that shows the conflicts.
    pub shown_on: ContactId,
    conflicts: Vec<Conflict>,
}

impl Refusal {
    /// Records the conflicts in the state of the contact that shows them.
    pub fn record(&self, state: &mut ContactState, seq: i64) {
        self.conflicts.iter().for_each(|conflict| state.conflict(seq, conflict.clone()));
    }
}

/// Decides by the order of the identifiers: the event belongs to the contact of the first one. If that is not known yet, it
/// belongs to the first known contact that can take it, or to a new one. Contacts that are merged are one.
///
/// `owners` has the contact of each identifier. `holds` says whether a contact has an identifier of a kind already.
pub fn resolve(
    identifiers: &[Identifier],
    owners: &[Option<Owner>],
    holds: impl Fn(ContactId, &str) -> bool,
) -> Resolution {
    let Some((first, lead)) = identifiers.first().zip(owners.first().copied()) else { return Resolution::default() };
    let can_take = |owner: Owner, identifier: &Identifier| !(identifier.single && holds(owner.root, &identifier.kind));
    let owner = lead.or_else(|| owners.iter().flatten().copied().find(|owner| can_take(*owner, first)));
    let mut resolution = Resolution { owner, ..Resolution::default() };
    for (place, (identifier, known)) in identifiers.iter().zip(owners).enumerate() {
        match (known, owner) {
            (Some(known), Some(owner)) if known.root == owner.root => {}
            (Some(known), _) => {
                let other = Some(known.root.0);
                resolution.conflicts.push(Conflict { kind: identifier.kind.clone(), other });
            }
            (None, Some(owner)) if !can_take(owner, identifier) => {
                resolution.conflicts.push(Conflict { kind: identifier.kind.clone(), other: None });
            }
            (None, _) => resolution.links.push(place),
        }
    }
    resolution
}

impl Resolution {
    /// Why the event is quarantined instead of being assigned; `None` if it is assigned.
    pub fn refusal(&self, identifiers: &[Identifier], on_conflict: OnConflict) -> Option<Refusal> {
        let shown_on =
            self.owner.map(|owner| owner.root).or_else(|| self.conflicts.iter().find_map(Conflict::other))?;
        if on_conflict == OnConflict::First || self.conflicts.is_empty() {
            return None;
        }
        let mut conflicts: Vec<Conflict> =
            self.conflicts.iter().filter(|conflict| conflict.other() != Some(shown_on)).cloned().collect();
        // The contact of a later identifier was passed over, since it has another one of the first kind.
        if let (None, Some(first)) = (self.owner, identifiers.first()) {
            conflicts.insert(0, Conflict { kind: first.kind.clone(), other: None });
        }
        let reasons: Vec<String> = conflicts
            .iter()
            .map(|conflict| match conflict.other() {
                Some(other) => format!("its {} belongs to {other}", conflict.kind),
                None => format!("{shown_on} has another {}", conflict.kind),
            })
            .collect();
        let message = format!(
            "its identifiers lead to {shown_on}, but {}; merge the contacts, or identify the event by one of them",
            reasons.join(", ")
        );
        let failure = Failure::new(FailureClass::Identity, IDENTITY_CONFLICT, message);
        Some(Refusal { failure, shown_on, conflicts })
    }

    /// Records in the state of the contact what was decided for an event.
    pub fn record(&self, identifiers: &[Identifier], state: &mut ContactState, seq: i64) {
        for identifier in self.links.iter().filter_map(|place| identifiers.get(*place)).filter(|other| other.single) {
            state.hold(&identifier.kind);
        }
        for conflict in &self.conflicts {
            state.conflict(seq, conflict.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<Owner> = Some(Owner { contact: ContactId(1), root: ContactId(1) });
    const B: Option<Owner> = Some(Owner { contact: ContactId(2), root: ContactId(2) });

    fn identifiers() -> Vec<Identifier> {
        let identifier =
            |kind: &str, n, single| Identifier { kind: kind.to_owned(), digest: KeyDigest([n; 16]), single };
        vec![identifier("external_id", 1, true), identifier("email", 2, false), identifier("phone", 3, false)]
    }

    fn resolved(owners: [Option<Owner>; 3], holds: impl Fn(ContactId, &str) -> bool) -> Resolution {
        resolve(&identifiers(), &owners, holds)
    }

    #[test]
    fn unknown_identifiers_make_a_new_contact() {
        let resolution = resolved([None, None, None], |_, _| false);
        assert_eq!((resolution.owner, resolution.links, resolution.conflicts), (None, vec![0, 1, 2], vec![]));
        assert_eq!(resolve(&[], &[], |_, _| false), Resolution::default());
    }

    #[test]
    fn a_known_identifier_brings_the_others_to_its_contact() {
        let resolution = resolved([None, A, None], |_, _| false);
        assert_eq!((resolution.owner, resolution.links, resolution.conflicts), (A, vec![0, 2], vec![]));
    }

    #[test]
    fn an_event_that_links_two_contacts_belongs_to_the_first_identifier_and_shows_the_conflict() {
        let resolution = resolved([A, B, None], |_, _| false);
        assert_eq!((resolution.owner, &resolution.links[..]), (A, &[2][..]));
        assert_eq!(resolution.conflicts, [Conflict { kind: "email".to_owned(), other: Some(2) }]);
    }

    #[test]
    fn merged_contacts_do_not_conflict() {
        let merged = Some(Owner { contact: ContactId(2), root: ContactId(1) });
        let resolution = resolved([merged, A, None], |_, _| false);
        assert_eq!((resolution.owner, resolution.links, resolution.conflicts), (merged, vec![2], vec![]));
    }

    #[test]
    fn merged_contacts_have_the_lane_of_their_root() {
        let merged = Owner { contact: ContactId(2), root: ContactId(1) };
        assert_eq!((merged.lane(), A.map(Owner::lane)), (ContactId(1), Some(ContactId(1))));
    }

    #[test]
    fn one_email_and_two_external_ids_are_two_contacts() {
        let resolution = resolved([None, A, None], |_, kind| kind == "external_id");
        assert_eq!((resolution.owner, &resolution.links[..]), (None, &[0, 2][..]));
        assert_eq!(resolution.conflicts, [Conflict { kind: "email".to_owned(), other: Some(1) }]);
        // With the email first, the email decides and the second id is kept apart.
        let mut by_email = identifiers();
        by_email.swap(0, 1);
        let resolution = resolve(&by_email, &[A, None, None], |_, kind| kind == "external_id");
        assert_eq!((resolution.owner, &resolution.links[..]), (A, &[2][..]));
        assert_eq!(resolution.conflicts, [Conflict { kind: "external_id".to_owned(), other: None }]);
    }

    #[test]
    fn a_conflict_is_refused_only_where_the_rule_says_so() {
        let linking = resolved([A, B, None], |_, _| false);
        assert_eq!(linking.refusal(&identifiers(), OnConflict::First), None);
        let refusal = linking.refusal(&identifiers(), OnConflict::Quarantine).unwrap();
        assert_eq!((refusal.shown_on, refusal.failure.code.as_str()), (ContactId(1), IDENTITY_CONFLICT));
        assert!(refusal.failure.message.starts_with("its identifiers lead to con_1, but its email belongs to con_2;"));
        assert_eq!(resolved([A, None, None], |_, _| false).refusal(&identifiers(), OnConflict::Quarantine), None);
        assert_eq!(resolved([None; 3], |_, _| false).refusal(&identifiers(), OnConflict::Quarantine), None);
    }

    #[test]
    fn a_refused_second_id_is_shown_on_the_contact_of_the_email() {
        let second_id = resolved([None, A, None], |_, kind| kind == "external_id");
        let refusal = second_id.refusal(&identifiers(), OnConflict::Quarantine).unwrap();
        let mut state = ContactState::default();
        refusal.record(&mut state, 7);
        let shown: Vec<_> = state.conflicts().map(|(seq, conflict)| (seq, conflict.clone())).collect();
        assert_eq!(refusal.shown_on, ContactId(1));
        assert_eq!(shown, [(7, Conflict { kind: "external_id".to_owned(), other: None })]);
        assert!(state.is_empty() && !state.holds("external_id"), "nothing is linked or merged");
        assert!(refusal.failure.message.contains("con_1 has another external_id"), "{}", refusal.failure.message);
    }

    #[test]
    fn the_state_remembers_single_identifiers_and_conflicts() {
        let mut state = ContactState::default();
        resolved([None, A, None], |_, _| false).record(&identifiers(), &mut state, 4);
        assert!(state.holds("external_id") && !state.holds("email"));
        resolved([A, B, None], |_, _| false).record(&identifiers(), &mut state, 5);
        let conflicts: Vec<_> = state.conflicts().map(|(seq, conflict)| (seq, conflict.other())).collect();
        assert_eq!(conflicts, [(5, Some(ContactId(2)))]);
    }
}
