//! Users, API tokens and sessions.

use sluice_domain::access::{CredentialKind, Permission};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{CallerView, SessionView, TokenView, UserView};

impl Operator {
    /// Who asks.
    pub fn whoami(&self) -> CallerView {
        let (name, role) = (self.actor(""), self.caller.role.to_string());
        CallerView { name, role, reveal: self.caller.reveal }
    }

    /// By name.
    pub async fn users(&self) -> Result<Vec<UserView>, OperateError> {
        self.permit(Permission::Administer)?;
        Ok(self.ledger.users().await?.into_iter().map(UserView::from).collect())
    }

    /// API tokens without their secrets, newest first.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, OperateError> {
        self.permit(Permission::Administer)?;
        Ok(self.ledger.credentials(CredentialKind::Token).await?.into_iter().map(TokenView::from).collect())
    }

    /// Newest first.
    pub async fn sessions(&self) -> Result<Vec<SessionView>, OperateError> {
        self.permit(Permission::Administer)?;
        Ok(self.ledger.credentials(CredentialKind::Session).await?.into_iter().map(SessionView::from).collect())
    }
}
