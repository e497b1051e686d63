//! Users of the admin API and their credentials.

use std::time::Duration;

use sluice_domain::access::{CredentialKind, Role, SESSIONS_PER_USER_MAX};
use sluice_ledger::{
    CredentialRecord, NewCredential, ProviderIdentity, PutUser, RemoveUser, RevokeCredential, SecretDigest, TakeLink,
    UseCredential,
};

use crate::driver::{Driver, Fixture, at, open};

fn put(name: &str, role: Role, password: Option<&str>) -> PutUser {
    let (name, password, actor) = (name.into(), password.map(str::to_owned), "root".into());
    PutUser { name, role, reveal: false, password, actor, at: at(1) }
}

fn new(kind: CredentialKind, name: &str, n: u8) -> NewCredential {
    NewCredential {
        kind,
        digest: digest(n),
        name: name.into(),
        role: Role::Operator,
        reveal: true,
        provider: None,
        expires_at: at(100),
        actor: "root".into(),
        at: at(2),
    }
}

fn digest(n: u8) -> SecretDigest {
    [n; 32]
}

async fn issue<D: Driver>(fixture: &Fixture<D>, new: NewCredential) -> CredentialRecord {
    fixture.ledger.issue_credential(new).await.unwrap()
}

async fn known<D: Driver>(fixture: &Fixture<D>, n: u8) -> bool {
    fixture.ledger.credential(digest(n)).await.unwrap().is_some()
}

pub(crate) async fn a_user_is_added_changed_and_removed_over_restarts<D: Driver>() {
    let fixture = open::<D>();
    assert!(fixture.ledger.put_user(put("ann", Role::Viewer, Some("$hash"))).await.unwrap(), "new");
    let change = PutUser { at: at(5), reveal: true, ..put("ann", Role::Admin, None) };
    assert!(!fixture.ledger.put_user(change).await.unwrap(), "known");
    let fixture = fixture.reopen().await;
    let user = fixture.ledger.user("ann".into()).await.unwrap().unwrap();
    assert_eq!((user.role, user.reveal, user.password.as_deref()), (Role::Admin, true, Some("$hash")));
    assert_eq!((user.created_at, user.changed_at), (at(1), at(5)));
    fixture.ledger.put_user(put("bob", Role::Viewer, None)).await.unwrap();
    let names: Vec<String> = fixture.ledger.users().await.unwrap().into_iter().map(|user| user.name).collect();
    assert_eq!(names, ["ann", "bob"]);
    let remove = RemoveUser { name: "ann".into(), actor: "root".into(), at: at(6) };
    assert!(fixture.ledger.remove_user(remove.clone()).await.unwrap());
    assert!(!fixture.ledger.remove_user(remove).await.unwrap());
    assert_eq!(fixture.ledger.user("ann".into()).await.unwrap(), None);
    let audit = fixture.audit_lines().await;
    assert!(audit.iter().any(|line| line.contains("remove") && line.contains("user ann")), "{audit:?}");
}

pub(crate) async fn a_new_password_or_a_removal_ends_the_sessions_of_a_user<D: Driver>() {
    let fixture = open::<D>();
    for (name, n) in [("ann", 1), ("bob", 2)] {
        fixture.ledger.put_user(put(name, Role::Viewer, None)).await.unwrap();
        issue(&fixture, new(CredentialKind::Session, name, n)).await;
    }
    issue(&fixture, new(CredentialKind::Link, "ann", 3)).await;
    fixture.ledger.put_user(put("ann", Role::Operator, None)).await.unwrap();
    assert!(known(&fixture, 1).await, "another role keeps the session");
    fixture.ledger.put_user(put("ann", Role::Operator, Some("$new"))).await.unwrap();
    assert!(!known(&fixture, 1).await && known(&fixture, 2).await);
    assert!(!known(&fixture, 3).await, "a link that was made before would sign in in spite of the new password");
    issue(&fixture, new(CredentialKind::Link, "ann", 3)).await;
    let remove = RemoveUser { name: "ann".into(), actor: "root".into(), at: at(6) };
    fixture.ledger.remove_user(remove).await.unwrap();
    assert!(!known(&fixture, 3).await);
}

pub(crate) async fn a_sign_in_link_counts_once_and_not_after_its_time<D: Driver>() {
    let fixture = open::<D>();
    issue(&fixture, new(CredentialKind::Link, "ann", 1)).await;
    issue(&fixture, new(CredentialKind::Token, "ci", 2)).await;
    let take = |n, at| TakeLink { digest: digest(n), at };
    assert_eq!(fixture.ledger.take_link(take(1, at(3))).await.unwrap().unwrap().name, "ann");
    assert_eq!(fixture.ledger.take_link(take(1, at(3))).await.unwrap(), None, "used");
    assert_eq!(fixture.ledger.take_link(take(2, at(3))).await.unwrap(), None, "a token is no link");
    assert!(known(&fixture, 2).await);
    issue(&fixture, new(CredentialKind::Link, "ann", 3)).await;
    assert_eq!(fixture.ledger.take_link(take(3, at(100))).await.unwrap(), None, "expired");
}

pub(crate) async fn a_credential_reads_back_with_its_use_and_can_be_revoked<D: Driver>() {
    let fixture = open::<D>();
    let token = issue(&fixture, new(CredentialKind::Token, "ci", 1)).await;
    assert_eq!((token.role, token.reveal, token.expires_at, token.used_at), (Role::Operator, true, at(100), at(2)));
    fixture.ledger.use_credential(UseCredential { id: token.id, at: at(9) }).await.unwrap();
    fixture.ledger.use_credential(UseCredential { id: token.id, at: at(8) }).await.unwrap();
    let fixture = fixture.reopen().await;
    let found = fixture.ledger.credential(digest(1)).await.unwrap().unwrap();
    assert_eq!(found, CredentialRecord { used_at: at(9), ..token.clone() });
    assert_eq!(fixture.ledger.credentials(CredentialKind::Token).await.unwrap(), [found]);
    let revoke = |kind| RevokeCredential { id: token.id, kind, actor: "root".into(), at: at(10) };
    assert!(!fixture.ledger.revoke_credential(revoke(CredentialKind::Session)).await.unwrap(), "another kind");
    assert!(fixture.ledger.revoke_credential(revoke(CredentialKind::Token)).await.unwrap());
    assert!(!known(&fixture, 1).await);
    let again = issue(&fixture, new(CredentialKind::Token, "ci", 2)).await;
    assert!(again.id > token.id, "ids are not used again");
}

pub(crate) async fn a_session_of_a_provider_keeps_its_issuer_subject_and_role<D: Driver>() {
    let fixture = open::<D>();
    let (issuer, subject) = ("https://login.example".to_owned(), "4711".to_owned());
    let provider = Some(ProviderIdentity { issuer, subject });
    let session = NewCredential { provider: provider.clone(), ..new(CredentialKind::Session, "oidc:ann", 1) };
    issue(&fixture, session).await;
    issue(&fixture, new(CredentialKind::Session, "ann", 2)).await;
    let fixture = fixture.reopen().await;
    let found = fixture.ledger.credential(digest(1)).await.unwrap().unwrap();
    assert_eq!((found.provider, found.role, found.reveal), (provider, Role::Operator, true));
    assert_eq!(fixture.ledger.credential(digest(2)).await.unwrap().unwrap().provider, None);
    let audit = fixture.audit_lines().await;
    let is_told =
        |line: &String| line.contains("user oidc:ann") && line.contains("by https://login.example, subject 4711");
    assert!(audit.iter().any(is_told), "{audit:?}");
    fixture.ledger.put_user(put("ann", Role::Viewer, Some("$hash"))).await.unwrap();
    assert!(known(&fixture, 1).await && !known(&fixture, 2).await, "a local user of the same name is another one");
}

pub(crate) async fn sessions_beyond_the_maximum_and_expired_credentials_are_removed<D: Driver>() {
    let fixture = open::<D>();
    issue(&fixture, new(CredentialKind::Session, "bob", 200)).await;
    for n in 0..=u8::try_from(SESSIONS_PER_USER_MAX).unwrap() {
        issue(&fixture, new(CredentialKind::Session, "ann", n)).await;
    }
    assert!(!known(&fixture, 0).await && known(&fixture, 1).await, "the oldest goes");
    assert!(known(&fixture, 200).await, "another user keeps theirs");
    let late = NewCredential {
        at: at(100),
        expires_at: at(100) + Duration::from_secs(60),
        ..new(CredentialKind::Token, "ci", 201)
    };
    issue(&fixture, late).await;
    assert!(!known(&fixture, 1).await && !known(&fixture, 200).await && known(&fixture, 201).await);
}
