//! Who makes a request, and what that permits.

use std::fmt;

/// Name under which the holder of the admin token acts if the request names nobody. No user can have it.
pub const OWNER: &str = "admin";
/// Longest name of a user, in characters.
const NAME_MAX: usize = 64;

/// What a user or a token may do; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads everything but personal data.
    Viewer,
    /// Replays, drops, resolves, decides, pauses.
    Operator,
    /// Changes the configuration, keys, users and tokens.
    Admin,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    pub fn parse(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a command or a query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Operate,
    Administer,
    /// Seeing personal data unmasked. No role includes it.
    Reveal,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Permission::Operate => "the role operator",
            Permission::Administer => "the role admin",
            Permission::Reveal => "the permission reveal",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Holds the admin token, or signed in with a link that its holder made for themselves.
    Owner,
    User(String),
    /// An API token, by its name.
    Token(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub identity: Identity,
    pub role: Role,
    pub reveal: bool,
}

impl Caller {
    pub fn owner() -> Caller {
        Caller { identity: Identity::Owner, role: Role::Admin, reveal: true }
    }

    pub fn may(&self, permission: Permission) -> bool {
        match permission {
            Permission::Operate => self.role >= Role::Operator,
            Permission::Administer => self.role >= Role::Admin,
            Permission::Reveal => self.reveal,
        }
    }

    /// Name for the audit trail. Only the owner can act under a name that the request states.
    pub fn actor(&self, stated: &str) -> String {
        match &self.identity {
            Identity::Owner if stated.trim().is_empty() => OWNER.to_owned(),
            Identity::Owner => stated.trim().to_owned(),
            Identity::User(name) => name.clone(),
            Identity::Token(name) => format!("token:{name}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserNameProblem {
    #[error("a name has 1 to {NAME_MAX} of these characters: a-z A-Z 0-9 . _ - @")]
    Characters,
    #[error("`{OWNER}` is the holder of the admin token; choose another name")]
    Reserved,
}

/// Whether a user or a token can have this name. It is shown in the audit trail and used in addresses.
pub fn check_user_name(name: &str) -> Result<(), UserNameProblem> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_valid) {
        return Err(UserNameProblem::Characters);
    }
    if name.eq_ignore_ascii_case(OWNER) { Err(UserNameProblem::Reserved) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(role: Role, reveal: bool) -> Caller {
        Caller { identity: Identity::User("ann".into()), role, reveal }
    }

    #[test]
    fn each_role_includes_those_before_it_and_none_includes_reveal() {
        for (role, operates, administers) in
            [(Role::Viewer, false, false), (Role::Operator, true, false), (Role::Admin, true, true)]
        {
            let caller = user(role, false);
            assert_eq!(caller.may(Permission::Operate), operates, "{role}");
            assert_eq!(caller.may(Permission::Administer), administers, "{role}");
            assert!(!caller.may(Permission::Reveal), "{role}");
            assert!(user(role, true).may(Permission::Reveal), "{role}");
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
    }

    #[test]
    fn only_the_owner_can_act_under_a_stated_name() {
        assert_eq!(Caller::owner().actor(" ann "), "ann");
        assert_eq!(Caller::owner().actor(""), OWNER);
        assert_eq!(user(Role::Admin, true).actor("eve"), "ann");
        let token = Caller { identity: Identity::Token("ci".into()), role: Role::Operator, reveal: false };
        assert_eq!(token.actor("eve"), "token:ci");
    }

    #[test]
    fn names_are_short_plain_and_not_the_owners() {
        for name in ["ann", "ann@example.com", "a.b_c-9"] {
            assert_eq!(check_user_name(name), Ok(()), "{name}");
        }
        for name in ["", "a b", "<b>", "ann\u{202e}", "token:ci", &"a".repeat(65)] {
            assert_eq!(check_user_name(name), Err(UserNameProblem::Characters), "{name}");
        }
        assert_eq!(check_user_name("Admin"), Err(UserNameProblem::Reserved));
    }
}
