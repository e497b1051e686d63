//! Users, API tokens, sessions and sign-in links.

use axum::response::Response;
use sluice_domain::access::{CredentialKind, Role};

use super::page::{Act, Block, Cell, Field, FieldKind, Row, Table};
use super::visit::{Failure, Sent, Visit};
use crate::operate::{TokenRequest, UserRequest};

fn yes_or_no(value: bool) -> Cell {
    Cell::Text(if value { "yes" } else { "no" }.to_owned())
}

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("Users and tokens", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    Ok(vec![
        Block::Heading("Users".into()),
        Block::Table(user_table(visit).await?),
        Block::Fold("Add or change a user".into(), vec![user_form(visit)]),
        Block::Heading("API tokens".into()),
        Block::Table(token_table(visit).await?),
        Block::Fold("Add a token".into(), vec![token_form(visit)]),
        Block::Heading("Sessions".into()),
        Block::Table(session_table(visit).await?),
        Block::Twin(
            "sluice users; sluice tokens".into(),
            "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/users".into(),
        ),
    ])
}

fn roles() -> Vec<&'static str> {
    Role::ALL.map(Role::as_str).to_vec()
}

fn reveal_field() -> Field {
    Field { kind: FieldKind::Check, ..Field::text("reveal", "May reveal personal data", "", "with a reason each time") }
}

fn user_form(visit: &Visit) -> Act {
    let password = Field {
        kind: FieldKind::Password,
        ..Field::text("password", "Password", "", "at least 12 characters; empty: unchanged, or by links")
    };
    visit
        .act("/users", "Save user")
        .asking(Field { required: true, ..Field::text("name", "Name", "", "") })
        .asking(Field::choice("role", "Role", "viewer", roles()))
        .asking(reveal_field())
        .asking(password)
}

fn token_form(visit: &Visit) -> Act {
    visit
        .act("/tokens", "Add token")
        .asking(Field { required: true, ..Field::text("name", "Name", "", "") })
        .asking(Field::choice("role", "Role", "viewer", roles()))
        .asking(reveal_field())
        .asking(Field::text("for", "Lifetime", "90d", "366 days at most"))
}

async fn user_table(visit: &Visit) -> Result<Table, Failure> {
    let users = visit.operator.users().await?;
    let row = |user: &crate::operate::views::UserView| {
        let link = visit.act("/links", "Sign-in link").with("user", &*user.name);
        let remove = visit.act("/users/remove", "Remove").with("name", &*user.name).that_is_final();
        Row {
            mark: user.name.clone(),
            cells: vec![
                Cell::Text(user.name.clone()),
                Cell::Text(user.role.clone()),
                yes_or_no(user.reveal),
                Cell::Text(if user.has_password { "password or link" } else { "link" }.into()),
                Cell::Time(user.changed_at.clone()),
                Cell::Acts(vec![link, remove]),
            ],
        }
    };
    Ok(Table {
        caption: "Users".into(),
        columns: vec!["User", "Role", "Reveal", "Signs in by", "Changed", "Act"],
        rows: users.iter().map(row).collect(),
        empty: "No users yet: only the holder of the admin token signs in, with `sluice console`.".into(),
        ..Table::default()
    })
}

async fn token_table(visit: &Visit) -> Result<Table, Failure> {
    let tokens = visit.operator.tokens().await?;
    let row = |token: &crate::operate::views::TokenView| {
        let id = token.id.to_string();
        let revoke = visit.act("/credentials/revoke", "Revoke").with("kind", "token").with("id", id).that_is_final();
        Row {
            mark: token.name.clone(),
            cells: vec![
                Cell::Text(token.name.clone()),
                Cell::Text(token.role.clone()),
                yes_or_no(token.reveal),
                Cell::Time(token.expires_at.clone()),
                token.used_at.clone().map_or_else(|| Cell::Text("never".into()), Cell::Time),
                Cell::Acts(vec![revoke]),
            ],
        }
    };
    Ok(Table {
        caption: "API tokens".into(),
        columns: vec!["Token", "Role", "Reveal", "Expires", "Last used", "Act"],
        rows: tokens.iter().map(row).collect(),
        empty: "No API tokens.".into(),
        ..Table::default()
    })
}

async fn session_table(visit: &Visit) -> Result<Table, Failure> {
    let sessions = visit.operator.sessions().await?;
    let row = |session: &crate::operate::views::SessionView| {
        let id = session.id.to_string();
        let revoke = visit.act("/credentials/revoke", "End").with("kind", "session").with("id", id);
        Row {
            mark: session.id.to_string(),
            cells: vec![
                Cell::Text(session.user.clone()),
                Cell::Text(session.issuer.clone().unwrap_or_else(|| "password or link".into())),
                Cell::Text(if session.id == visit.session.id { "this one".into() } else { String::new() }),
                Cell::Time(session.created_at.clone()),
                Cell::Time(session.used_at.clone()),
                Cell::Acts(vec![revoke]),
            ],
        }
    };
    Ok(Table {
        caption: "Sessions".into(),
        columns: vec!["User", "By", "Note", "Began", "Last used", "Act"],
        rows: sessions.iter().map(row).collect(),
        ..Table::default()
    })
}

pub(super) async fn put(sent: Sent) -> Response {
    let request = UserRequest {
        name: sent.form.get("name").to_owned(),
        role: sent.form.get("role").to_owned(),
        reveal: sent.form.get("reveal") == "yes",
        password: sent.form.all("password").pop().filter(|password| !password.is_empty()),
        actor: String::new(),
    };
    let put = sent.visit.operator.put_user(request).await;
    sent.visit.done(put.map(|_| "/users".to_owned()).map_err(Failure::from)).await
}

pub(super) async fn remove(sent: Sent) -> Response {
    let removed = sent.visit.operator.remove_user(sent.form.get("name"), "").await;
    sent.visit.done(removed.map(|()| "/users".to_owned()).map_err(Failure::from)).await
}

/// The secret is in this response and nowhere else.
pub(super) async fn add_token(sent: Sent) -> Response {
    let request = TokenRequest {
        name: sent.form.get("name").to_owned(),
        role: sent.form.get("role").to_owned(),
        reveal: sent.form.get("reveal") == "yes",
        r#for: sent.form.option("for"),
        actor: String::new(),
    };
    let blocks = sent.visit.operator.add_token(request).await.map_err(Failure::from).map(|added| {
        let facts = vec![
            ("Token".to_owned(), Cell::Code(added.secret)),
            ("Role".to_owned(), Cell::Text(added.token.role)),
            ("Expires".to_owned(), Cell::Time(added.token.expires_at)),
        ];
        vec![Block::Text("Copy the token now. It is not shown again.".into()), Block::Facts(facts)]
    });
    sent.visit.show("New token", blocks).await
}

pub(super) async fn revoke(sent: Sent) -> Response {
    let kind = match sent.form.get("kind") {
        "session" => CredentialKind::Session,
        _ => CredentialKind::Token,
    };
    let revoked = sent.visit.operator.revoke(kind, sent.form.get("id"), "").await;
    sent.visit.done(revoked.map(|()| "/users".to_owned()).map_err(Failure::from)).await
}

/// The link is in this response and nowhere else.
pub(super) async fn add_link(sent: Sent) -> Response {
    let user = sent.form.option("user");
    let blocks = sent.visit.operator.add_link(user.as_deref(), "").await.map_err(Failure::from).map(|link| {
        let facts = vec![
            ("Address below this node".to_owned(), Cell::Code(link.path)),
            ("Signs in".to_owned(), Cell::Text(link.user)),
            ("Expires".to_owned(), Cell::Time(link.expires_at)),
        ];
        vec![Block::Text("Copy the link now. It can be used once.".into()), Block::Facts(facts)]
    });
    sent.visit.show("New sign-in link", blocks).await
}
