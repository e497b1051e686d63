//! Merge and split contacts.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::contact::MEMBERS_MAX;
use sluice_ledger::{ContactChange, MergeContacts, SplitContact};
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::contact_id;
use crate::operate::views::ContactView;

/// Makes a contact part of another one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeContactRequest {
    /// The contact that stays, such as `con_17`.
    pub into: String,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

/// Takes a contact out of the one that it is merged into.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitContactRequest {
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    pub async fn merge_contact(&self, id: &str, request: MergeContactRequest) -> Result<ContactView, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "a merge of contacts needs a reason")?;
        let (contact, into) = (contact_id(id)?, contact_id(&request.into)?);
        let (actor, at) = (self.actor(&request.actor), self.clock.ledger_time());
        let merge = MergeContacts { into, contact, actor, reason: request.reason, at };
        changed(self.ledger.merge_contacts(merge).await?, &format!("{id} or {}", request.into))?;
        self.contact(&request.into).await
    }

    pub async fn split_contact(&self, id: &str, request: SplitContactRequest) -> Result<ContactView, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "a split of a contact needs a reason")?;
        let (actor, at) = (self.actor(&request.actor), self.clock.ledger_time());
        let split = SplitContact { contact: contact_id(id)?, actor, reason: request.reason, at };
        changed(self.ledger.split_contact(split).await?, id)?;
        self.contact(id).await
    }
}

/// `names` are the contacts that the operator named.
fn changed(change: ContactChange, names: &str) -> Result<(), OperateError> {
    Err(match change {
        ContactChange::Done => return Ok(()),
        ContactChange::NotFound => {
            OperateError::NotFound(format!("there is no contact {names}; `sluice contacts list` shows them all"))
        }
        ContactChange::Same => OperateError::Invalid("a contact cannot be merged into itself".to_owned()),
        ContactChange::MergedInto(parent) => {
            let detail = format!("the contact is part of {parent}; merge that one, or split the contact off first");
            OperateError::Refused("contact-merged", detail)
        }
        ContactChange::NotMerged => {
            OperateError::Refused("contact-not-merged", "the contact is not merged into another one".to_owned())
        }
        ContactChange::TooMany => {
            OperateError::Refused("contact-limit", format!("at most {MEMBERS_MAX} contacts can be merged into one"))
        }
        ContactChange::Busy { jobs } => OperateError::Refused(
            "contact-busy",
            format!(
                "{jobs} jobs of these contacts have not ended, or a late call of them may still be applied; \
                 their order would be lost. Try again once they have ended and their records were compared"
            ),
        ),
    })
}
