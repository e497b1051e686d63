//! `oidc:`: what is read, and what `check` says about a mistake.

use sluice_domain::access::Role;
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;
use crate::traces::FLOW;

fn compiled(oidc: &str) -> (Compiled, Files) {
    let files = Files::from_texts([("flow.yml", FLOW), ("oidc.yml", oidc)]);
    (compile(&files, &editor::AnySecret), files)
}

fn with(more: &str) -> String {
    format!("oidc:\n  issuer: https://login.example\n  client_id: sluice\n  public_url: https://sluice.example\n{more}")
}

#[test]
fn provider_is_compiled() {
    let text = with(
        "  client_secret: '${secrets.OIDC}'\n  groups: [{group: ops, role: operator}, {group: root, role: admin, reveal: true}]\n",
    );
    let settings = editor::valid(compiled(&text)).oidc.unwrap();
    assert_eq!((settings.name.as_str(), settings.is_https()), ("login.example", true));
    assert_eq!(settings.redirect_uri(), "https://sluice.example/sign-in/oidc/callback");
    assert_eq!(settings.scopes, ["openid", "profile", "email"]);
    assert_eq!((settings.name_claim.as_str(), settings.groups_claim.as_str()), ("email", "groups"));
    let rights: Vec<_> = settings.groups.iter().map(|rule| (rule.group.as_str(), rule.role, rule.reveal)).collect();
    assert_eq!(rights, [("ops", Role::Operator, false), ("root", Role::Admin, true)]);
    assert_eq!((settings.default_role, settings.client_secret.is_some()), (None, true));
    assert!(!format!("{settings:?}").contains("secret-of"), "{settings:?}");
    let open = editor::valid(compiled(&with("  default_role: viewer\n  scopes: openid\n"))).oidc.unwrap();
    assert_eq!((open.default_role, open.scopes.len(), open.client_secret.is_none()), (Some(Role::Viewer), 1, true));
    let local = with("  default_role: viewer\n").replace("https://sluice.example", "http://localhost:8081/");
    assert_eq!(editor::valid(compiled(&local)).oidc.unwrap().public_url, "http://localhost:8081");
    assert!(editor::valid(compiled("queues: [other]\n")).oidc.is_none());
}

#[test]
fn mistakes_are_reported_with_what_to_do() {
    let default = "  default_role: viewer\n";
    let cases = [
        ("oidc: {}\n".to_owned(), "oidc needs `issuer`"),
        (with(""), "or nobody could sign in"),
        (with(default).replace("https://login.example", "login.example"), "`issuer` is not a URL"),
        (with(default).replace("https://login.example", "http://login.example"), "an issuer is an https URL"),
        (with(default).replace("https://login.example", "https://login.example/?a"), "no query"),
        (with(default).replace("https://sluice.example", "http://sluice.example"), "https URLs only"),
        (with(default).replace("https://sluice.example", "https://sluice.example/console"), "leave out the path"),
        (with("  default_role: root\n"), "one of `viewer`, `operator`, `admin`"),
        (with("  default_role: viewer\n  client_secret: hunter2hunter2\n"), "${secrets."),
        (with("  default_role: viewer\n  scopes: [email]\n"), "must contain openid"),
        (with("  default_role: viewer\n  scopes: ['openid email']\n"), "a scope is one word"),
        (with("  groups: {ops: operator}\n"), "`groups` must be a list"),
        (with("  groups: [{group: ops}]\n"), "a group of oidc needs `role`"),
        (with("  groups: [{group: ops, role: operater}]\n"), "did you mean `operator`?"),
        (
            with("  groups: [{group: ops, role: viewer}, {group: ops, role: admin}]\n"),
            "the group `ops` has a role already",
        ),
        (with("  default_role: viewer\n  isuer: a\n"), "did you mean `issuer`?"),
        (format!("{}---\n{}", with(default), with(default)), "oidc is already defined"),
        ("oidc: on\n".to_owned(), "oidc must be a map"),
    ];
    for (text, expected) in cases {
        let (compiled, files) = compiled(&text);
        let told = render_all(&compiled.problems, &files, Colours::None);
        assert!(compiled.config.is_none() && told.contains(expected), "{text}\n{told}");
        assert!(told.contains("oidc.yml:"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
