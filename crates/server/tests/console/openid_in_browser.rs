//! Sign-in by an OpenID provider in a real browser: the policy of the page lets it through, with script and without.

use crate::browser::{Browser, Script};
use crate::openid::Provided;

async fn check_journey(script: Script) {
    let browser = Browser::start(script).await;
    let provided = Provided::start().await;
    let admin = &provided.world.admin;
    browser.open(&format!("{admin}/dead-letters")).await;
    browser.sees("Sign in with Example login").await;
    browser.picture("sign-in-openid").await;

    browser.click("a.button").await;
    browser.sees("Simulated provider").await;
    browser.click("button[value=vic]").await;
    browser.sees("oidc:vic@example.com is signed in at the provider, but has no group").await;
    browser.click("a.button").await;
    browser.click("button[name=deny]").await;
    browser.sees("the provider says: the user said no (access_denied)").await;

    browser.open(&format!("{admin}/dead-letters")).await;
    browser.click("a.button").await;
    browser.click("button[value=bob]").await;
    browser.arrives_at("/dead-letters").await;
    browser.sees("oidc:bob@example.com <small>operator</small>").await;
    let names: Vec<String> = browser.cookies().await.into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"sluice_session".to_owned()) && !names.contains(&"sluice_oidc".to_owned()), "{names:?}");
    browser.open(&format!("{admin}/users")).await;
    browser.sees("You may not do this").await;

    browser.click("form[action='/sign-out'] button").await;
    browser.arrives_at("/sign-in").await;
    browser.open(&format!("{admin}/")).await;
    browser.sees("Sign in with Example login").await;
    let violations = browser.errors().await.into_iter().filter(|error| error.contains("Content Security Policy"));
    assert_eq!(violations.collect::<Vec<_>>(), Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_signs_in_and_says_why_it_refuses() {
    Box::pin(check_journey(Script::On)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_signs_in_with_script_off() {
    Box::pin(check_journey(Script::Off)).await;
}
