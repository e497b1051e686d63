//! Users of the admin API and their credentials.

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::access::{CredentialKind, Role, SESSIONS_PER_USER_MAX};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::access::{
    CredentialRecord, NewCredential, ProviderIdentity, PutUser, RemoveUser, RevokeCredential, SecretDigest, TakeLink,
    UseCredential, UserRecord,
};

impl Reader<'_> {
    pub(crate) fn user(&self, name: &str) -> rusqlite::Result<Option<UserRecord>> {
        self.prepare_cached(include_str!("sql/user.sql"))?.query_row([name], user_row).optional()
    }

    pub(crate) fn users(&self) -> rusqlite::Result<Vec<UserRecord>> {
        self.prepare_cached(include_str!("sql/users.sql"))?.query_map([], user_row)?.collect()
    }

    pub(crate) fn credential(&self, digest: &SecretDigest) -> rusqlite::Result<Option<CredentialRecord>> {
        self.prepare_cached(include_str!("sql/credential.sql"))?.query_row([digest], credential_row).optional()
    }

    pub(crate) fn credentials(&self, kind: &CredentialKind) -> rusqlite::Result<Vec<CredentialRecord>> {
        self.prepare_cached(include_str!("sql/credentials.sql"))?.query_map([kind.as_str()], credential_row)?.collect()
    }
}

impl Batch<'_, '_> {
    pub(super) fn write_user(&mut self, put: &PutUser) -> rusqlite::Result<bool> {
        let is_new = self.reader().user(&put.name)?.is_none();
        self.cached(include_str!("sql/put_user.sql"))?.execute(params![
            put.name,
            put.role.as_str(),
            put.reveal,
            put.password,
            put.at.0
        ])?;
        if put.password.is_some() {
            self.end_sign_ins(&put.name)?;
        }
        let action = if is_new { "add" } else { "change" };
        self.log(put.at, &put.actor, action, &format!("user {}", put.name), &put.detail())?;
        Ok(is_new)
    }

    pub(super) fn delete_user(&mut self, remove: &RemoveUser) -> rusqlite::Result<bool> {
        let deleted = self.cached(include_str!("sql/delete_user.sql"))?.execute([&remove.name])? > 0;
        if deleted {
            self.end_sign_ins(&remove.name)?;
            self.log(remove.at, &remove.actor, "remove", &format!("user {}", remove.name), "")?;
        }
        Ok(deleted)
    }

    /// Ends the sessions of a user, and links that were not used yet.
    fn end_sign_ins(&self, name: &str) -> rusqlite::Result<()> {
        self.delete_credentials(CredentialKind::Session, name)?;
        self.delete_credentials(CredentialKind::Link, name).map(drop)
    }

    fn delete_credentials(&self, kind: CredentialKind, name: &str) -> rusqlite::Result<usize> {
        self.cached(include_str!("sql/delete_credentials_of.sql"))?.execute([kind.as_str(), name])
    }

    pub(super) fn insert_credential(&mut self, new: &NewCredential) -> rusqlite::Result<CredentialRecord> {
        self.cached(include_str!("sql/delete_expired_credentials.sql"))?.execute([new.at.0])?;
        let record = self.cached(include_str!("sql/insert_credential.sql"))?.query_row(
            params![
                new.digest,
                new.kind.as_str(),
                new.name,
                new.role.as_str(),
                new.reveal,
                new.at.0,
                new.actor,
                new.expires_at.0,
                new.provider.as_ref().map(|provider| &provider.issuer),
                new.provider.as_ref().map(|provider| &provider.subject),
            ],
            credential_row,
        )?;
        if new.kind == CredentialKind::Session {
            let delete = include_str!("sql/delete_oldest_sessions.sql");
            self.cached(delete)?.execute(params![new.name, SESSIONS_PER_USER_MAX as i64])?;
        }
        let (action, object, detail) = new.audited();
        self.log(new.at, &new.actor, action, &object, &detail)?;
        Ok(record)
    }

    pub(super) fn delete_link(&mut self, take: &TakeLink) -> rusqlite::Result<Option<CredentialRecord>> {
        let taken =
            self.cached(include_str!("sql/take_link.sql"))?.query_row([&take.digest], credential_row).optional()?;
        Ok(taken.filter(|link| take.at < link.expires_at))
    }

    pub(super) fn write_use(&mut self, used: &UseCredential) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/use_credential.sql"))?.execute([used.id, used.at.0])?;
        Ok(())
    }

    pub(super) fn delete_credential(&mut self, revoke: &RevokeCredential) -> rusqlite::Result<bool> {
        let deleted = self
            .cached(include_str!("sql/delete_credential.sql"))?
            .query_row(params![revoke.id, revoke.kind.as_str()], credential_row)
            .optional()?;
        if let Some(record) = &deleted {
            self.log(revoke.at, &revoke.actor, "revoke", &record.object(), "")?;
        }
        Ok(deleted.is_some())
    }
}

fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Role> {
    Role::parse(row.get_ref(column)?.as_str()?).ok_or_else(|| wrong(column, "unknown role"))
}

fn user_row(row: &Row<'_>) -> rusqlite::Result<UserRecord> {
    Ok(UserRecord {
        name: row.get(0)?,
        role: role(row, 1)?,
        reveal: row.get(2)?,
        password: row.get(3)?,
        created_at: Time(row.get(4)?),
        changed_at: Time(row.get(5)?),
    })
}

fn credential_row(row: &Row<'_>) -> rusqlite::Result<CredentialRecord> {
    let (issuer, subject): (Option<String>, Option<String>) = (row.get(9)?, row.get(10)?);
    Ok(CredentialRecord {
        id: row.get(0)?,
        kind: CredentialKind::parse(row.get_ref(1)?.as_str()?).ok_or_else(|| wrong(1, "unknown kind"))?,
        name: row.get(2)?,
        role: role(row, 3)?,
        reveal: row.get(4)?,
        provider: issuer.zip(subject).map(|(issuer, subject)| ProviderIdentity { issuer, subject }),
        created_at: Time(row.get(5)?),
        created_by: row.get(6)?,
        expires_at: Time(row.get(7)?),
        used_at: Time(row.get(8)?),
    })
}
