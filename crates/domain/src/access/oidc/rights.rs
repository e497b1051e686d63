//! Settings of a provider, and who signs in with which role.

use serde_json::Value;

use super::id_token::IdToken;
use super::{OidcRefusal, USER_PREFIX};
use crate::access::Role;
use crate::verify::SecretValue;

/// Longest name, in characters: that of a subject.
const NAME_MAX: usize = 255;

/// How users sign in by an OpenID provider.
#[derive(Clone, Debug)]
pub struct OidcSettings {
    /// URL of the provider, exactly as it names itself.
    pub issuer: String,
    /// Name of the provider on the sign-in page.
    pub name: String,
    pub client_id: String,
    /// `None` for a public client.
    pub client_secret: Option<SecretValue>,
    /// Scheme, host and port at which browsers reach the console, without a slash at the end.
    pub public_url: String,
    /// `openid` is among them.
    pub scopes: Vec<String>,
    /// Claim with the name of the user.
    pub name_claim: String,
    /// Claim with the groups of the user, or a JSON pointer to it.
    pub groups_claim: String,
    pub groups: Vec<GroupRights>,
    /// Of users without such a group; `None` refuses them.
    pub default_role: Option<Role>,
}

/// What the users of a group may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRights {
    pub group: String,
    pub role: Role,
    pub reveal: bool,
}

/// A user whom the provider has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderUser {
    /// With the prefix.
    pub name: String,
    /// The provider's own id of the user, which never changes.
    pub subject: String,
    pub role: Role,
    pub reveal: bool,
}

impl OidcSettings {
    /// Who signs in, with the role of their groups.
    pub fn admit(&self, token: &IdToken) -> Result<ProviderUser, OidcRefusal> {
        let name = format!("{USER_PREFIX}{}", self.name_of(token)?);
        let (role, reveal) = match self.rights(token) {
            Some(rights) => rights,
            None => return Err(OidcRefusal::NoRole { user: name }),
        };
        Ok(ProviderUser { name, subject: token.subject().to_owned(), role, reveal })
    }

    /// The claim that names the user. An address that the provider has not verified names nobody: the subject does.
    fn name_of<'t>(&self, token: &'t IdToken) -> Result<&'t str, OidcRefusal> {
        let claimed = match self.name_claim.as_str() {
            "email" => {
                let email = token.text("email").filter(|email| token.email_is_verified() && is_name(email));
                Some(email.unwrap_or(token.subject()))
            }
            claim => token.text(claim),
        };
        claimed.filter(|name| is_name(name)).ok_or_else(|| OidcRefusal::NoName(self.name_claim.clone()))
    }

    /// The highest role of the user's groups, and whether any of them may reveal.
    fn rights(&self, token: &IdToken) -> Option<(Role, bool)> {
        let of_user = self.groups_of(token);
        let matching = || self.groups.iter().filter(|rule| of_user.contains(&rule.group.as_str()));
        let role = matching().map(|rule| rule.role).max().or(self.default_role)?;
        Some((role, matching().any(|rule| rule.reveal)))
    }

    fn groups_of<'t>(&self, token: &'t IdToken) -> Vec<&'t str> {
        // Anyone can write an address into their account; only a verified one says who they are.
        if self.groups_claim == "email" && !token.email_is_verified() {
            return vec![];
        }
        match token.claim(&self.groups_claim) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        }
    }
}

/// Whether a text can be shown as a name: one line of plain characters without markup.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '\'' | '&' | '`' | '\\');
    !text.is_empty() && text.len() <= NAME_MAX && text.chars().all(is_plain)
}
