//! What a merge of two contacts would do.

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::ContactView;

/// Two contacts, and the one that they would become.
#[derive(Clone, Debug)]
pub struct MergePreview {
    pub contact: ContactView,
    pub into: ContactView,
    /// With the values of both; the rules of the contacts decide which of them count.
    pub merged: ContactView,
}

impl Operator {
    /// Changes nothing.
    pub async fn merge_preview(&self, contact: &str, into: &str) -> Result<MergePreview, OperateError> {
        let (contact, into) = (self.contact_named(contact).await?, self.contact_named(into).await?);
        if contact.id == into.id {
            return Err(OperateError::Invalid("a contact cannot be merged into itself".to_owned()));
        }
        let mut merged = into.clone();
        merged.state.join(&contact.state);
        merged.members.extend(contact.members.iter().copied());
        Ok(MergePreview {
            contact: ContactView::new(&contact),
            into: ContactView::new(&into),
            merged: ContactView::new(&merged),
        })
    }
}
