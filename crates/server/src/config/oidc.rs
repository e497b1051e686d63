//! `oidc:`, the OpenID provider by which users of the console sign in.

use std::sync::Arc;

use sluice_domain::access::Role;
use sluice_domain::access::oidc::{GroupRights, OidcSettings, issuer_problem, public_url_problem};

use super::connector::texts;
use super::declarations::{Declarations, Placed, SourceLocation};
use super::destination::{read_revealed, read_url};
use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{Span, YamlNode};
use super::table::{SectionSpec, ValueType, key};

/// Groups that may be listed.
const GROUPS_MAX: usize = 1_000;
/// Scope without which a provider sends no ID token.
const OPENID: &str = "openid";
const SCOPES: [&str; 3] = [OPENID, "profile", "email"];
const NAME_CLAIM: &str = "email";
const GROUPS_CLAIM: &str = "groups";
const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

pub(super) static OIDC: SectionSpec = SectionSpec {
    title: "oidc",
    about: "Lets users sign in to the console by an OpenID provider (OpenID Connect, authorization code flow with PKCE). Sign-in links, passwords and the admin token stay.",
    keys: &[
        key("issuer", ValueType::Url, "URL of the provider, exactly as its description names it.").required(),
        key("client_id", ValueType::Plain, "Id under which the provider knows this node.").required(),
        key("client_secret", ValueType::Secret, "Secret of that client; absent for a public client."),
        key(
            "public_url",
            ValueType::Url,
            "Where browsers reach the console, without a path. The provider must know public_url/sign-in/oidc/callback as redirect URI.",
        )
        .required(),
        key("name", ValueType::Text, "Name of the provider on the sign-in page.").or("the host of the issuer"),
        key("scopes", ValueType::Described("a list of texts"), "Scopes to ask for; openid must be among them.")
            .or("[openid, profile, email]"),
        key(
            "name_claim",
            ValueType::Text,
            "Claim of the ID token with the name of the user. An email counts only if email_verified is true; else the subject (sub) is the name.",
        )
        .or("email"),
        key(
            "groups_claim",
            ValueType::Text,
            "Claim of the ID token with the groups of the user: a text or a list of texts. With / at the start it is a JSON pointer, such as /realm_access/roles.",
        )
        .or("groups"),
        key("groups", ValueType::Tables("a group of oidc"), "Roles of groups. Of several groups the highest role counts."),
        key("default_role", ValueType::OneOf(&ROLES), "Role of users without such a group.").or("they are refused"),
    ],
    later: &[],
    rules: &[super::rule::at_least_one(
        &["groups", "default_role"],
        "oidc needs `groups` or `default_role`, or nobody could sign in",
        "add groups: [{group: sluice-operators, role: operator}]",
    )],
};

pub(super) static OIDC_GROUP: SectionSpec = SectionSpec {
    title: "a group of oidc",
    about: "What the users of one group of the provider may do.",
    keys: &[
        key("group", ValueType::Text, "Value in the groups claim, compared exactly.").required(),
        key("role", ValueType::OneOf(&ROLES), "Role of its users.").required(),
        key("reveal", ValueType::Flag, "May see personal data unmasked, with a reason each time.").or("false"),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    if let Some(first) = &names.oidc {
        report
            .error(node.span, "duplicate-name", format!("oidc is already defined in {}", first.place.describe()))
            .hint("keep one `oidc:` section");
        return;
    }
    let Some(fields) = Fields::open(report, node, &[&OIDC]) else { return };
    let issuer = read_address(&fields, "issuer", issuer_problem);
    let public_url = read_url(&fields, "public_url").map(|url| url.trim_end_matches('/').to_owned());
    let public_url = public_url.filter(|url| is_fine(&fields, "public_url", public_url_problem(url)));
    let client_id = read_revealed(&fields, "client_id");
    let client_secret = fields.secret("client_secret");
    let (scopes, groups) = (read_scopes(&fields), read_groups(&fields));
    let text = |name: &'static str, default: &str| fields.text(name).unwrap_or(default).to_owned();
    let (name_claim, groups_claim) = (text("name_claim", NAME_CLAIM), text("groups_claim", GROUPS_CLAIM));
    let default_role = fields.one_of("default_role").and_then(Role::parse);
    let (Some(issuer), Some(public_url), Some(client_id)) = (issuer, public_url, client_id) else { return };
    let settings = OidcSettings {
        name: text("name", host(&issuer)),
        issuer,
        client_id,
        client_secret,
        public_url,
        scopes,
        name_claim,
        groups_claim,
        groups,
        default_role,
    };
    names.oidc = Some(Placed { place: SourceLocation::new(report, node.span), value: Arc::new(settings) });
}

fn read_address(
    fields: &Fields<'_, '_>,
    name: &'static str,
    problem: fn(&str) -> Option<&'static str>,
) -> Option<String> {
    read_url(fields, name).filter(|url| is_fine(fields, name, problem(url)))
}

fn is_fine(fields: &Fields<'_, '_>, name: &'static str, problem: Option<&'static str>) -> bool {
    if let Some(problem) = problem {
        fields
            .report
            .error(fields.value_span(name), "bad-value", format!("`{name}`: {problem}"))
            .hint("such as https://login.example.com");
    }
    problem.is_none()
}

/// Host of a URL, without its port.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', ':']).next().unwrap_or(rest)
}

fn read_scopes(fields: &Fields<'_, '_>) -> Vec<String> {
    let Some(node) = fields.node("scopes") else { return SCOPES.map(str::to_owned).to_vec() };
    let scopes = texts(fields.report, node, "scopes");
    let is_word = |scope: &String| scope.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'));
    if !scopes.iter().all(is_word) {
        fields
            .report
            .error(node.span, "bad-value", "a scope is one word")
            .hint("write each scope as an item of its own: scopes: [openid, groups]");
    }
    if !scopes.is_empty() && !scopes.iter().any(|scope| scope == OPENID) {
        fields
            .report
            .error(node.span, "bad-value", "`scopes` must contain openid, or the provider sends no ID token")
            .hint("write scopes: [openid, …]");
    }
    scopes
}

fn read_groups(fields: &Fields<'_, '_>) -> Vec<GroupRights> {
    let Some(node) = fields.node("groups") else { return vec![] };
    let report = fields.report;
    let Some(items) = node.items() else {
        report
            .error(node.span, "wrong-type", format!("`groups` must be a list, found {}", node.describe()))
            .hint("such as groups: [{group: sluice-operators, role: operator}]");
        return vec![];
    };
    if items.len() > GROUPS_MAX {
        report.error(node.span, "too-many", format!("at most {GROUPS_MAX} groups can have a role"));
    }
    let mut groups: Vec<GroupRights> = vec![];
    for item in items {
        let Some(group) = read_group(report, item) else { continue };
        if groups.iter().any(|known| known.group == group.0.group) {
            report
                .error(group.1, "duplicate-name", format!("the group `{}` has a role already", group.0.group))
                .hint("remove one of them");
            continue;
        }
        groups.push(group.0);
    }
    groups
}

fn read_group(report: Report<'_>, node: &YamlNode) -> Option<(GroupRights, Span)> {
    let fields = Fields::open(report, node, &[&OIDC_GROUP])?;
    let group = fields.text("group").map(str::to_owned);
    let role = fields.one_of("role").and_then(Role::parse);
    let reveal = fields.flag("reveal").unwrap_or(false);
    Some((GroupRights { group: group?, role: role?, reveal }, fields.value_span("group")))
}
