//! The console in a real browser: with keys, with script off, on a phone, in both themes.

use serde_json::json;

use crate::browser::{Browser, Script};
use crate::busy::Busy;
use crate::fixture::{World, lead, until};
use crate::pages::with_dead_letter;
use crate::visitor::link;

pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const PHONE: u32 = 390;
const DESK: u32 = 1280;

/// The source of axe-core, installed from npm once.
fn axe() -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe-4.14.0");
    let file = folder.join("node_modules/axe-core/axe.min.js");
    if !file.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix", "."];
        let status =
            std::process::Command::new("npm").args(install).arg("axe-core@4.14.0").current_dir(&folder).status();
        assert!(status.is_ok_and(|status| status.success()), "installing axe-core from npm");
    }
    std::fs::read_to_string(file).unwrap()
}

pub(crate) async fn sign_in(browser: &Browser, world: &World) {
    sign_in_as(browser, world, None).await;
}

pub(crate) async fn sign_in_as(browser: &Browser, world: &World, user: Option<&str>) {
    let link = link(world, user).await;
    browser.open(&format!("{}/sign-in?link={link}", world.admin)).await;
    browser.click("main button").await;
    browser.sees("Needs you").await;
}

/// Every page for one role: in light, in dark and on a phone, without an error of the browser and without a serious finding.
async fn check_pages(role: Option<&str>) {
    let browser = Browser::start(Script::On).await;
    let busy = Busy::start().await;
    let user = role.map(|role| format!("a-{role}"));
    if let (Some(role), Some(user)) = (role, &user) {
        let order = json!({ "name": user, "role": role, "password": "correct horse battery", "actor": "root" });
        assert_eq!(busy.world.act("/api/v1/users", order).await.status, 200);
    }
    sign_in_as(&browser, &busy.world, user.as_deref()).await;
    let axe = tokio::task::spawn_blocking(axe).await.unwrap();
    let mut wrong = vec![];
    for (scheme, width) in [("light", DESK), ("dark", DESK), ("light", PHONE)] {
        browser.emulate(scheme, width).await;
        for (name, path) in busy.pages().await {
            browser.open(&format!("{}{path}", busy.world.admin)).await;
            browser.sees("Live.").await;
            let fits = "return document.documentElement.scrollWidth <= window.innerWidth + 1";
            if browser.run(fits).await != json!(true) {
                wrong.push(format!("{path} is wider than {width}"));
            }
            let found = browser.findings(&axe).await.into_iter();
            wrong.extend(found.map(|finding| format!("{path} {scheme} {width}: {finding}")));
            if role.is_none() && std::env::var("SLUICE_SCREENSHOTS").is_ok() {
                browser.emulate_size(scheme, width, browser.page_height().await.clamp(600, 2_400)).await;
                browser.picture(&format!("{name}-{scheme}-{width}")).await;
                browser.emulate(scheme, width).await;
            }
        }
    }
    // A viewer is refused a page or two; that is a status, not a fault of the page.
    wrong.extend(browser.errors().await.into_iter().filter(|error| !error.contains("403")));
    assert_eq!(wrong, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_an_admin_have_no_error_and_no_serious_finding() {
    Box::pin(check_pages(None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_an_operator_have_no_error_and_no_serious_finding() {
    Box::pin(check_pages(Some("operator"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_viewer_have_no_error_and_no_serious_finding() {
    Box::pin(check_pages(Some("viewer"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_replayed_with_the_mouse_and_the_page_follows() {
    let browser = Browser::start(Script::On).await;
    let (world, _) = with_dead_letter().await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/dead-letters", world.admin)).await;
    browser.click("tbody input[type=checkbox]").await;
    browser.click("button[formaction^='/sheets/replay?scope=marked']").await;
    browser.sees("Replay 1 jobs").await;
    browser.picture("sheet-light-1280").await;
    browser.type_into("main > form.act input[name=reason]", "the field is longer now").await;
    browser.click("main > form.act button").await;
    browser.arrives_at("/replays/replay_").await;
    browser.sees("the field is longer now").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_that_arrives_is_shown_without_a_reload() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/", world.admin)).await;
    browser.sees("Live.").await;
    for n in 0..20 {
        world.post(&lead(&format!("burst-{n}"))).await;
    }
    let count = "return document.querySelector('.tile[data-state=succeeded] strong').textContent";
    until(|| async { (browser.run(count).await == json!("20")).then_some(()) }).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_alone_reach_a_dead_letter() {
    let browser = Browser::start(Script::On).await;
    let (world, event) = with_dead_letter().await;
    sign_in(&browser, &world).await;
    browser.sees("Live.").await;
    browser.press("gd").await;
    browser.arrives_at("/dead-letters").await;
    browser.sees("Live.").await;
    browser.press("jj").await;
    browser.press(ENTER).await;
    browser.arrives_at("/jobs/job_").await;
    browser.sees("Live.").await;
    browser.press("/").await;
    browser.press(&event).await;
    browser.press(ENTER).await;
    browser.arrives_at(&format!("/events/{event}")).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destination_is_paused_and_resumed_with_script_off() {
    let browser = Browser::start(Script::Off).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/destinations", world.admin)).await;
    browser.sees("Live updates need script.").await;
    browser.click("tbody tr summary").await;
    browser.type_into("tbody tr input[name=reason]", "maintenance").await;
    browser.click("tbody tr form button").await;
    browser.sees("is paused by admin: maintenance").await;
    browser.click("tbody tr summary").await;
    browser.click("tbody tr form button").await;
    until(|| async { (!browser.html().await.contains("is paused by")).then_some(()) }).await;
    browser.close().await;
}
