//! Users of the admin API and their credentials.

use sluice_domain::access::{CredentialKind, SESSIONS_PER_USER_MAX};

use super::Store;
use crate::access::{
    CredentialRecord, NewCredential, PutUser, RemoveUser, RevokeCredential, SecretDigest, TakeLink, UseCredential,
    UserRecord,
};

/// Rows that a list returns at most.
const LIST_MAX: usize = 1_000;

/// In the order of their ids.
pub(super) type Credentials = Vec<(SecretDigest, CredentialRecord)>;

impl Store {
    pub fn put_user(&mut self, put: &PutUser) -> bool {
        let before = self.users.get(&put.name);
        let is_new = before.is_none();
        let record = UserRecord {
            name: put.name.clone(),
            role: put.role,
            reveal: put.reveal,
            password: put.password.clone().or_else(|| before.and_then(|user| user.password.clone())),
            created_at: before.map_or(put.at, |user| user.created_at),
            changed_at: put.at,
        };
        self.users.insert(put.name.clone(), record);
        if put.password.is_some() {
            self.remove_credentials(&[CredentialKind::Session, CredentialKind::Link], &put.name);
        }
        let action = if is_new { "add" } else { "change" };
        self.log(put.at, &put.actor, action, &format!("user {}", put.name), &put.detail());
        is_new
    }

    pub fn remove_user(&mut self, remove: &RemoveUser) -> bool {
        let removed = self.users.remove(&remove.name).is_some();
        if removed {
            self.remove_credentials(&[CredentialKind::Session, CredentialKind::Link], &remove.name);
            self.log(remove.at, &remove.actor, "remove", &format!("user {}", remove.name), "");
        }
        removed
    }

    fn remove_credentials(&mut self, kinds: &[CredentialKind], name: &str) {
        self.credentials.retain(|(_, record)| !(kinds.contains(&record.kind) && record.name == name));
    }

    pub fn issue_credential(&mut self, new: &NewCredential) -> CredentialRecord {
        self.credentials.retain(|(_, record)| new.at < record.expires_at);
        self.last_credential += 1;
        let record = CredentialRecord {
            id: self.last_credential,
            kind: new.kind,
            name: new.name.clone(),
            role: new.role,
            reveal: new.reveal,
            provider: new.provider.clone(),
            created_at: new.at,
            created_by: new.actor.clone(),
            expires_at: new.expires_at,
            used_at: new.at,
        };
        self.credentials.push((new.digest, record.clone()));
        if new.kind == CredentialKind::Session {
            let is_own = |record: &CredentialRecord| record.kind == new.kind && record.name == new.name;
            let own = self.credentials.iter().filter(|(_, record)| is_own(record)).map(|(_, record)| record.id);
            let oldest: Option<i64> = own.rev().nth(SESSIONS_PER_USER_MAX);
            self.credentials.retain(|(_, record)| !is_own(record) || oldest.is_none_or(|oldest| record.id > oldest));
        }
        let (action, object, detail) = new.audited();
        self.log(new.at, &new.actor, action, &object, &detail);
        record
    }

    pub fn take_link(&mut self, take: &TakeLink) -> Option<CredentialRecord> {
        let is_it = |(digest, record): &(SecretDigest, CredentialRecord)| {
            *digest == take.digest && record.kind == CredentialKind::Link
        };
        let place = self.credentials.iter().position(is_it)?;
        let (_, link) = self.credentials.remove(place);
        (take.at < link.expires_at).then_some(link)
    }

    pub fn use_credential(&mut self, used: &UseCredential) {
        if let Some((_, record)) = self.credentials.iter_mut().find(|(_, record)| record.id == used.id) {
            record.used_at = record.used_at.max(used.at);
        }
    }

    pub fn revoke_credential(&mut self, revoke: &RevokeCredential) -> bool {
        let is_it = |record: &CredentialRecord| record.id == revoke.id && record.kind == revoke.kind;
        let Some(place) = self.credentials.iter().position(|(_, record)| is_it(record)) else { return false };
        let (_, record) = self.credentials.remove(place);
        self.log(revoke.at, &revoke.actor, "revoke", &record.object(), "");
        true
    }

    pub(crate) fn user(&self, name: &str) -> Option<UserRecord> {
        self.users.get(name).cloned()
    }

    pub(crate) fn users(&self) -> Vec<UserRecord> {
        self.users.values().take(LIST_MAX).cloned().collect()
    }

    pub(crate) fn credential(&self, digest: &SecretDigest) -> Option<CredentialRecord> {
        self.credentials.iter().find(|(known, _)| known == digest).map(|(_, record)| record.clone())
    }

    pub(crate) fn credentials(&self, kind: CredentialKind) -> Vec<CredentialRecord> {
        let newest_first = self.credentials.iter().rev().filter(|(_, record)| record.kind == kind);
        newest_first.take(LIST_MAX).map(|(_, record)| record.clone()).collect()
    }
}
