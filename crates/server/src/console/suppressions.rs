//! Suppressed contacts: whom no message is sent to.

use axum::response::Response;

use super::page::{Block, Cell, Field, More, Row, Table};
use super::visit::{Failure, Sent, Visit};
use crate::operate::SuppressRequest;
use crate::operate::views::SuppressionView;

/// Rows of a page.
const ROWS_MAX: u32 = 200;

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Suppressed contacts", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let after = query.option("after").and_then(|after| after.parse().ok());
    let found = visit.operator.suppressions(after, ROWS_MAX).await?;
    let row = |suppressed: &SuppressionView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Text(suppressed.contact.clone()),
            Cell::Text(if suppressed.channel.is_empty() { "any".into() } else { suppressed.channel.clone() }),
            Cell::Text(suppressed.actor.clone()),
            Cell::Text(suppressed.reason.clone()),
            Cell::Time(suppressed.at.clone()),
        ],
    };
    let table = Table {
        caption: "Suppressed contacts, newest first".into(),
        columns: vec!["Contact, masked", "Channel", "Who", "Why", "Since"],
        rows: found.items.iter().map(row).collect(),
        empty: "No contact is suppressed.".into(),
        more: More::of(&found, "/suppressions", query),
        bulk: None,
    };
    let form = |what: &str, button: &str| {
        let contact =
            Field { required: true, ..Field::text("contact", "Contact", "", "email address, phone number or id") };
        let channel = Field::text("channel", "Channel", "", "empty: any");
        visit.act("/suppressions", button).with("what", what).asking(contact).asking(channel).asking(Field::reason())
    };
    let text = "Steps whose policy respects suppression send nothing to these contacts. The list holds digests: a contact cannot be read back, \
                so it is named again to be removed."
        .to_owned();
    Ok(vec![
        Block::Text(text),
        Block::Fold("Suppress a contact".into(), vec![form("add", "Suppress")]),
        Block::Fold("Remove a contact from the list".into(), vec![form("remove", "Remove from the list")]),
        Block::Table(table),
        Block::Twin(
            "sluice suppress list; sluice suppress add CONTACT --reason WHY".into(),
            "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/suppressions".into(),
        ),
    ])
}

pub(super) async fn change(sent: Sent) -> Response {
    let done = change_list(&sent).await;
    sent.visit.done(done).await
}

async fn change_list(sent: &Sent) -> Result<String, Failure> {
    let contact = sent.form.get("contact").to_owned();
    if contact.is_empty() {
        return Err(Failure::invalid("name a contact: an email address, a phone number or an id"));
    }
    let (add, remove) = match sent.form.get("what") {
        "remove" => (vec![], vec![contact]),
        _ => (vec![contact], vec![]),
    };
    let is_removal = add.is_empty();
    let request = SuppressRequest {
        add,
        remove,
        channel: sent.form.get("channel").to_owned(),
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let changed = sent.visit.operator.suppress(request).await?;
    if is_removal && changed.removed == 0 {
        return Err(Failure::invalid("this contact is not on the list of this channel; nothing was removed"));
    }
    Ok("/suppressions".to_owned())
}
