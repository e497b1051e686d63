//! `sluice users`, `sluice tokens` and `sluice console`.

use std::io::Read;

use serde_json::json;

use super::node_access::NodeArgs;
use super::print::{self, Format, ago, hint};
use super::selection::Actor;
use super::table::{Cell, Column, Table, pairs};
use super::{CliError, exit};
use crate::operate::views::{LinkView, NewTokenView, TokenView, UserView};

/// Longest password on standard input, in bytes.
const PASSWORD_BYTES_MAX: u64 = 1_024;

/// List, add and remove users of the console and the admin API
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Roles: viewer reads, operator replays, drops, decides and pauses, admin changes the configuration, keys and users. Seeing personal \
data is a permission of its own (--reveal).\n\nExamples:\n  sluice users\n  sluice users add ann --role operator\n  sluice users add ann --role operator --password-stdin < password\n  sluice users remove ann"
)]
pub struct Users {
    #[command(subcommand)]
    command: Option<UsersCommand>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum UsersCommand {
    /// Add a user, or change one
    Add(AddUser),
    /// Remove a user; their sessions end
    Remove(RemoveUser),
}

#[derive(Debug, clap::Args)]
struct AddUser {
    /// Name that the user signs in with
    name: String,
    /// viewer, operator or admin
    #[arg(long, default_value = "viewer")]
    role: String,
    /// May see personal data unmasked, with a reason
    #[arg(long)]
    reveal: bool,
    /// Read a password of at least 12 characters from standard input; without one the user signs in by links
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveUser {
    /// The user
    name: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

/// List, add and revoke API tokens
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A token is shown once. Programs send it as `Authorization: Bearer slu_…`; this command line reads it from SLUICE_ADMIN_TOKEN.\n\nExamples:\n  sluice tokens\n  sluice tokens add ci --role viewer --for 30d\n  sluice tokens revoke 3"
)]
pub struct Tokens {
    #[command(subcommand)]
    command: Option<TokensCommand>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum TokensCommand {
    /// Add a token and print it once
    Add(AddToken),
    /// Revoke a token, by its number
    Revoke(RevokeToken),
}

#[derive(Debug, clap::Args)]
struct AddToken {
    /// Name of the token, for the audit trail
    name: String,
    /// viewer, operator or admin
    #[arg(long, default_value = "viewer")]
    role: String,
    /// May see personal data unmasked, with a reason
    #[arg(long)]
    reveal: bool,
    /// Lifetime: 90 days by default, 366 at most
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct RevokeToken {
    /// Number of the token, as listed
    id: i64,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

/// Make a sign-in link for the console
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The link is valid for 30 minutes and can be used once.\n\nExamples:\n  sluice console\n  sluice console --user ann"
)]
pub struct Console {
    /// User who signs in; the holder of the admin token by default
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Users {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Some(UsersCommand::Add(add)) => add.run(),
            Some(UsersCommand::Remove(remove)) => remove.run(),
            None => self.reach.run(async |client| {
                let answer = client.get("/users", &[]).await?;
                let Some(users) = self.format.read::<Vec<UserView>>(&answer)? else { return Ok(()) };
                if users.is_empty() {
                    return print::print("No users; the holder of the admin token signs in with `sluice console`.");
                }
                print::print(&render_users(&users))
            }),
        }
    }
}

fn render_users(users: &[UserView]) -> String {
    let columns = [Column::Wrap("USER"), Column::Whole("ROLE"), Column::Whole("REVEAL"), Column::Wrap("SIGNS IN BY")];
    let mut table = Table::new(columns);
    for user in users {
        let by = if user.has_password { "password or link" } else { "link" };
        table.row([user.name.as_str(), &user.role, if user.reveal { "yes" } else { "no" }, by].map(Cell::from));
    }
    table.render()
}

impl AddUser {
    fn run(self) -> Result<(), CliError> {
        let password = if self.password_stdin { Some(read_password()?) } else { None };
        self.reach.run(async |client| {
            let order = json!({
                "name": self.name, "role": self.role, "reveal": self.reveal, "password": password, "actor": self.actor.name()
            });
            let answer = client.post("/users", &order).await?;
            let Some(user) = self.format.read::<UserView>(&answer)? else { return Ok(()) };
            let mut text = format!("{} is {}\n", user.name, user.role);
            if !user.has_password {
                text.push_str(&hint(&format!("Make a sign-in link: sluice console --user {}", user.name)));
            }
            print::print(text.trim_end())
        })
    }
}

/// The first line of standard input.
fn read_password() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(PASSWORD_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| CliError::new(exit::USAGE, format!("standard input: {error}")))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

impl RemoveUser {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let path = format!("/users/{}/remove", super::events::escaped(&self.name));
            let answer = client.post(&path, &json!({ "actor": self.actor.name() })).await?;
            if self.format.json {
                return print::json(&answer);
            }
            print::print(&format!("{} removed; their sessions have ended", self.name))
        })
    }
}

impl Tokens {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Some(TokensCommand::Add(add)) => add.run(),
            Some(TokensCommand::Revoke(revoke)) => revoke.run(),
            None => self.reach.run(async |client| {
                let answer = client.get("/tokens", &[]).await?;
                let Some(tokens) = self.format.read::<Vec<TokenView>>(&answer)? else { return Ok(()) };
                if tokens.is_empty() {
                    return print::print("No API tokens; `sluice tokens add NAME` makes one.");
                }
                print::print(&render_tokens(&tokens))
            }),
        }
    }
}

fn render_tokens(tokens: &[TokenView]) -> String {
    let mut table = Table::new([
        Column::Number("NUMBER"),
        Column::Wrap("TOKEN"),
        Column::Whole("ROLE"),
        Column::Whole("REVEAL"),
        Column::Whole("EXPIRES"),
        Column::Whole("LAST USED"),
    ]);
    for token in tokens {
        let used = token.used_at.as_deref().map_or_else(|| "never".to_owned(), ago);
        table.row([
            Cell::from(token.id.unsigned_abs()),
            token.name.as_str().into(),
            token.role.as_str().into(),
            if token.reveal { "yes" } else { "no" }.into(),
            ago(&token.expires_at).into(),
            used.into(),
        ]);
    }
    table.render()
}

impl AddToken {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({
                "name": self.name, "role": self.role, "reveal": self.reveal, "for": self.lasts, "actor": self.actor.name()
            });
            let answer = client.post("/tokens", &order).await?;
            let Some(added) = self.format.read::<NewTokenView>(&answer)? else { return Ok(()) };
            let text = pairs([
                ("token", added.secret),
                ("role", added.token.role),
                ("expires", added.token.expires_at),
            ]);
            print::print((text + &hint("It is not shown again.")).trim_end())
        })
    }
}

impl RevokeToken {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "actor": self.actor.name() });
            let answer = client.post(&format!("/tokens/{}/revoke", self.id), &order).await?;
            if self.format.json {
                return print::json(&answer);
            }
            print::print(&format!("token {} revoked", self.id))
        })
    }
}

impl Console {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            if client.is_offline() {
                let message = "no node is running, so there is no console; start one with `sluice up`";
                return Err(CliError::new(exit::UNAVAILABLE, message));
            }
            let order = json!({ "user": self.user, "actor": self.actor.name() });
            let answer = client.post("/sign-in-links", &order).await?;
            let Some(link) = self.format.read::<LinkView>(&answer)? else { return Ok(()) };
            let address = format!("{}{}", client.address(), link.path);
            let text = format!("{address}\n{}", hint("Valid for 30 minutes, and once."));
            print::print(text.trim_end())
        })
    }
}
