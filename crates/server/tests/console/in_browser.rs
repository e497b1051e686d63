//! The console in a real browser: with keys, with script off, on a phone, in both themes.

use serde_json::json;

use crate::browser::{Browser, Script};
use crate::fixture::{World, lead, until};
use crate::pages::{PAGES, with_dead_letter};
use crate::visitor::link;

const ENTER: &str = "\u{e007}";
const PHONE: u32 = 390;
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

async fn sign_in(browser: &Browser, world: &World) {
    let link = link(world, None).await;
    browser.open(&format!("{}/sign-in?link={link}", world.admin)).await;
    browser.click("main button").await;
    browser.sees("Needs you").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_no_error_and_no_serious_finding_in_light_dark_and_on_a_phone() {
    let browser = Browser::start(Script::On).await;
    let (world, event) = with_dead_letter().await;
    sign_in(&browser, &world).await;
    let axe = tokio::task::spawn_blocking(axe).await.unwrap();
    let event_page = format!("/events/{event}");
    for (scheme, width) in [("light", DESK), ("dark", DESK), ("light", PHONE)] {
        browser.emulate(scheme, width).await;
        for path in PAGES.iter().copied().chain([event_page.as_str()]) {
            browser.open(&format!("{}{path}", world.admin)).await;
            browser.sees("Live.").await;
            let fits = "return document.documentElement.scrollWidth <= window.innerWidth + 1";
            assert_eq!(browser.run(fits).await, json!(true), "{path} is wider than {width}");
            assert_eq!(browser.findings(&axe).await, Vec::<String>::new(), "{path} {scheme} {width}");
            let name = if path == "/" {
                "overview"
            } else if path == event_page {
                "event"
            } else {
                &path[1..]
            };
            browser.picture(&format!("{name}-{scheme}-{width}")).await;
        }
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
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
    browser.type_into("form.act input[name=reason]", "the field is longer now").await;
    browser.click("form.act button").await;
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
