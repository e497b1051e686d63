//! What an operator does at three in the morning, in a real browser.

use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan};

use crate::browser::{Browser, Script};
use crate::busy::{Busy, request};
use crate::fixture::{FLOW, QUEUES, World, lead, until};
use crate::in_browser::{ENTER, PHONE, sign_in, sign_in_as};
use crate::pages::PICKY;

/// A node whose CRM has rejected some leads.
async fn with_dead_letters(count: usize) -> (World, Vec<String>) {
    let world = World::start_with(&[("flow.yml", FLOW), ("worker.yml", PICKY), ("queues.yml", QUEUES)]).await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 400 })).unwrap();
    let mut events = vec![];
    for n in 0..count {
        let event = world.post(&lead(&format!("dead-{n}"))).await.event();
        assert_eq!(world.settled(&event).await[0]["state"], "dead");
        events.push(event);
    }
    (world, events)
}

async fn job_of(world: &World, event: &str) -> String {
    world.get(&format!("/api/v1/events/{event}")).await["jobs"][0]["id"].as_str().unwrap().to_owned()
}

async fn pauses(world: &World) -> usize {
    world.get("/api/v1/pauses").await.as_array().unwrap().len()
}

async fn add_user(world: &World, name: &str, role: &str) {
    let user = json!({ "name": name, "role": role, "password": "correct horse battery", "actor": "root" });
    assert_eq!(world.act("/api/v1/users", user).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_is_fixed_and_the_replay_is_watched_until_it_succeeds() {
    let browser = Browser::start(Script::On).await;
    let (world, events) = with_dead_letters(1).await;
    let job = job_of(&world, &events[0]).await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/dead-letters", world.admin)).await;
    browser.click("button[formaction^='/sheets/replay?scope=all']").await;
    browser.sees("Replay 1 jobs").await;
    world.crm.set_faults(FaultPlan::none()).unwrap();
    browser.type_into("main > form.act input[name=reason]", "the CRM is fixed").await;
    browser.click("main > form.act button").await;
    browser.arrives_at("/replays/replay_").await;
    browser.open(&format!("{}/jobs/{job}", world.admin)).await;
    // The page follows the job without being loaded again.
    let state = "return document.querySelector('.facts .state')?.textContent";
    until(|| async { (browser.run(state).await == json!("succeeded")).then_some(()) }).await;
    let entry = world.get("/api/v1/replays").await["items"][0].clone();
    assert_eq!((&entry["reason"], &entry["actor"]), (&json!("the CRM is fixed"), &json!("admin")));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_that_runs_is_cancelled() {
    let browser = Browser::start(Script::On).await;
    let (world, events) = with_dead_letters(3).await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/dead-letters", world.admin)).await;
    browser.click("button[formaction^='/sheets/replay?scope=all']").await;
    browser.sees("Replay 3 jobs").await;
    browser.type_into("main > form.act input[name=reason]", "slowly").await;
    browser.type_into("main > form.act input[name=rate]", "1/1h").await;
    browser.type_into("main > form.act input[name=batch]", "1").await;
    browser.click("main > form.act button").await;
    browser.arrives_at("/replays/replay_").await;
    browser.sees("running").await;
    browser.run("for (const fold of document.querySelectorAll('details.fold')) fold.open = true; return true").await;
    browser.type_into("form[action$='/cancel'] input[name=reason]", "not tonight").await;
    browser.click("form[action$='/cancel'] button").await;
    browser.sees("cancelled").await;
    until(|| async {
        let replay = world.get("/api/v1/replays").await["items"][0].clone();
        (replay["state"] == "cancelled" && replay["replayed"].as_u64() <= Some(1)).then_some(())
    })
    .await;
    let mut dead = 0;
    for event in &events {
        dead += u32::from(world.settled(event).await[0]["state"] == "dead");
    }
    assert!(dead >= 2, "{dead} of 3 stay dead letters");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_are_decided_in_bulk() {
    let browser = Browser::start(Script::On).await;
    let busy = Busy::start().await;
    let asked = busy.world.get("/api/v1/approvals?state=pending").await["items"].as_array().unwrap().len();
    sign_in(&browser, &busy.world).await;
    browser.open(&format!("{}/approvals", busy.world.admin)).await;
    browser.click("button[formaction='/sheets/approvals?decision=approve&scope=all']").await;
    browser.sees(&format!("approve {asked} approvals")).await;
    browser.type_into("main > form.act input[name=reason]", "checked them all").await;
    browser.click("main > form.act button").await;
    browser.arrives_at("/approvals").await;
    // Later jobs of a person may ask now; those that were shown are decided.
    let approved = busy.world.get("/api/v1/approvals?state=approved").await;
    assert_eq!(approved["items"].as_array().unwrap().len(), asked, "{approved}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn person_is_found_by_mail_and_their_lineage_is_shown() {
    let browser = Browser::start(Script::On).await;
    let busy = Busy::start().await;
    sign_in(&browser, &busy.world).await;
    browser.type_into("#search", "Ada@Example.com").await;
    browser.click(".search button").await;
    browser.arrives_at(&format!("/people/{}", busy.person)).await;
    browser.sees("What is known, and why").await;
    browser.sees("older").await;
    let html = browser.html().await;
    assert!(!html.to_lowercase().contains("ada@example.com") && !browser.address().await.contains("example.com"));
    let count = |kind: &str| html.matches(&format!("<span class=\"text short\">{kind}</span>")).count();
    assert!(count("event") == 3 && count("effect") >= 1 && count("attempt") >= 1, "{html}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_contacts_are_merged_after_a_preview_and_split_again() {
    let browser = Browser::start(Script::On).await;
    let busy = Busy::start().await;
    let other = busy.world.get("/api/v1/contacts/person1%40example.com").await["id"].as_str().unwrap().to_owned();
    // Nothing of these two may be live: approvals hold one job each, and the sink is paused.
    busy.world.sink.set_faults(FaultPlan::none()).unwrap();
    busy.world.act("/api/v1/resume", json!({ "target": "destination:sink" })).await;
    until(|| async {
        // The next job of a person asks once the one before it has ended.
        let all = json!({ "decision": "reject", "all": true, "reason": "not now" });
        busy.world.act("/api/v1/approvals", all).await;
        let jobs = busy.world.get("/api/v1/status").await["jobs"].clone();
        let live: u64 =
            ["queued", "running", "retrying", "waiting"].iter().filter_map(|state| jobs[*state].as_u64()).sum();
        (live == 0).then_some(())
    })
    .await;
    sign_in(&browser, &busy.world).await;
    browser.open(&format!("{}/people/{other}", busy.world.admin)).await;
    browser.click("details.fold summary").await;
    let merge = "form[action='/sheets/merge']";
    let all_open = "for (const fold of document.querySelectorAll('details.fold')) fold.open = true; return true";
    browser.run(all_open).await;
    browser.type_into(&format!("{merge} input[name=into]"), &busy.person).await;
    browser.click(&format!("{merge} button")).await;
    browser.sees("Values after the merge").await;
    browser.type_into("main > form.act input[name=reason]", "the same person").await;
    browser.click("main > form.act button").await;
    browser.arrives_at(&format!("/people/{}", busy.person)).await;
    browser.sees("Includes").await;
    browser.run(all_open).await;
    browser.click("form[action='/sheets/split'] button").await;
    browser.sees("Becomes a contact of its own").await;
    browser.type_into("main > form.act input[name=reason]", "two after all").await;
    browser.click("main > form.act button").await;
    browser.arrives_at(&format!("/people/{other}")).await;
    let contact = busy.world.get(&format!("/api/v1/contacts/{other}")).await;
    assert_eq!(contact["merged_into"], Value::Null);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_is_undone_from_any_page() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/destinations/crm", world.admin)).await;
    browser.click("details.fold summary").await;
    browser.type_into("form[action='/pause'] input[name=reason]", "by mistake").await;
    browser.click("form[action='/pause'] button").await;
    browser.sees("is paused by admin: by mistake").await;
    assert_eq!(pauses(&world).await, 1);
    browser.open(&format!("{}/events", world.admin)).await;
    browser.click(".banner form[action='/resume'] button").await;
    browser.arrives_at("/events").await;
    until(|| async { (pauses(&world).await == 0).then_some(()) }).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_mode_is_turned_on_and_off() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    browser.open(&format!("{}/workers", world.admin)).await;
    browser.run("for (const fold of document.querySelectorAll('details')) fold.open = true; return true").await;
    browser.type_into("form[action='/safe-mode'] input[name=reason]", "strange leads").await;
    browser.click("form[action='/safe-mode'] button").await;
    browser.sees("safe mode of to-crm: strange leads").await;
    assert_eq!(world.get("/api/v1/safe-mode").await[0]["worker"], "to-crm");
    browser.click(".banner form[action='/safe-mode'] button").await;
    until(|| async { world.get("/api/v1/safe-mode").await.as_array().unwrap().is_empty().then_some(()) }).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn viewer_sees_the_form_and_is_refused_the_act() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    add_user(&world, "vic", "viewer").await;
    sign_in_as(&browser, &world, Some("vic")).await;
    browser.open(&format!("{}/destinations/crm", world.admin)).await;
    browser.click("details.fold summary").await;
    browser.type_into("form[action='/pause'] input[name=reason]", "curious").await;
    browser.click("form[action='/pause'] button").await;
    browser.sees("You may not do this").await;
    assert_eq!(pauses(&world).await, 0);
    browser.open(&format!("{}/users", world.admin)).await;
    browser.sees("You may not do this").await;
    browser.close().await;
}

/// A page of another origin on this machine, with a form that posts to the console.
fn foreign_page(action: &str, fields: &[(&str, &str)]) -> String {
    use std::io::{Read, Write};
    let inputs: String =
        fields.iter().map(|(name, value)| format!("<input type=hidden name={name} value='{value}'>")).collect();
    let html =
        format!("<!doctype html><form method=post action='{action}'>{inputs}<button>win a prize</button></form>");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                html.len()
            );
            let _ = stream.write_all(format!("{head}{html}").as_bytes());
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_site_is_refused_even_with_the_stolen_form_token() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    let token = browser.run("return document.querySelector('input[name=form_token]').value").await;
    let fields = [("target", "destination:crm"), ("reason", "x"), ("form_token", token.as_str().unwrap())];
    browser.open(&foreign_page(&format!("{}/pause", world.admin), &fields)).await;
    browser.click("button").await;
    browser.arrives_at("/pause").await;
    assert_eq!(pauses(&world).await, 0, "{}", browser.html().await);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_cannot_be_read_by_script_and_ends_for_a_thief_too() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    sign_in(&browser, &world).await;
    let visible = browser.run("return document.cookie").await;
    assert!(!visible.as_str().unwrap().contains("session"), "{visible}");
    let (name, value) = browser.cookies().await.into_iter().find(|(name, _)| name.contains("session")).unwrap();
    let stolen = async || {
        let request =
            world.client.get(format!("{}/api/v1/status", world.admin)).header("cookie", format!("{name}={value}"));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(stolen().await, 200, "the cookie is the session");
    // It does not change anything on its own.
    let act = world.client.post(format!("{}/pause", world.admin)).header("cookie", format!("{name}={value}"));
    let act = act.form(&[("target", "destination:crm"), ("reason", "x")]).send().await.unwrap();
    assert!((act.status().as_u16(), pauses(&world).await) == (403, 0), "{}", act.status());
    browser.click(".who button").await;
    browser.arrives_at("/sign-in").await;
    assert_eq!(stolen().await, 401, "signing out ends it everywhere");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_replayed_with_the_keyboard_alone() {
    let browser = Browser::start(Script::On).await;
    let (world, _) = with_dead_letters(1).await;
    sign_in(&browser, &world).await;
    browser.sees("Live.").await;
    browser.press("gd").await;
    browser.arrives_at("/dead-letters").await;
    browser.sees("Live.").await;
    browser.press("jjx").await;
    let marked = "return document.querySelectorAll('tbody input:checked').length";
    assert_eq!(browser.run(marked).await, json!(1));
    browser.tab_to("button[formaction^='/sheets/replay?scope=marked']").await;
    browser.press(ENTER).await;
    browser.sees("Replay 1 jobs").await;
    browser.tab_to("main > form.act input[name=reason]").await;
    browser.press("typed").await;
    browser.press(ENTER).await;
    browser.arrives_at("/replays/replay_").await;
    assert_eq!(world.get("/api/v1/replays").await["items"][0]["reason"], "typed");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_replayed_on_a_phone_with_targets_for_a_finger() {
    let browser = Browser::start(Script::On).await;
    let (world, _) = with_dead_letters(1).await;
    sign_in(&browser, &world).await;
    browser.emulate("dark", PHONE).await;
    browser.open(&format!("{}/dead-letters", world.admin)).await;
    let small = "return [...document.querySelectorAll('main button, main summary, nav.side a, .windows a')]\
                 .filter((part) => part.offsetParent && part.getBoundingClientRect().height < 44).map((part) => part.textContent)";
    // The style sheet of a phone applies once the emulated size does.
    until(|| async { (browser.run(small).await == json!([])).then_some(()) }).await;
    browser.click("tbody input[type=checkbox]").await;
    browser.click("button[formaction^='/sheets/replay?scope=marked']").await;
    browser.sees("Replay 1 jobs").await;
    browser.type_into("main > form.act input[name=reason]", "from the train").await;
    browser.click("main > form.act button").await;
    browser.arrives_at("/replays/replay_").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_live_updates_works_with_script_off() {
    let browser = Browser::start(Script::Off).await;
    let (world, _) = with_dead_letters(2).await;
    sign_in(&browser, &world).await;
    browser.click(".windows a[href*='7d']").await;
    browser.arrives_at("/?window=7d").await;
    browser.sees("last 7 days").await;
    browser.open(&format!("{}/dead-letters?worker=to-crm", world.admin)).await;
    browser.click("details.fold summary").await;
    browser.type_into("form[action='/views'] input[name=name]", "crm, dead").await;
    browser.click("form[action='/views'] button").await;
    browser.sees("Saved as crm, dead").await;
    browser.open(&format!("{}/", world.admin)).await;
    browser.click(".views a").await;
    browser.arrives_at("/dead-letters?worker=to-crm").await;
    browser.click("button[formaction^='/sheets/drop?scope=all']").await;
    browser.sees("Drop 2 jobs").await;
    browser.type_into("main > form.act input[name=count]", "2").await;
    browser.type_into("main > form.act input[name=reason]", "spam").await;
    browser.click("main > form.act button").await;
    browser.sees("no dead letter matches").await;
    assert_eq!(world.get("/api/v1/status").await["jobs"]["dropped"], 2);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_without_an_identity_is_identified_with_a_reason() {
    let browser = Browser::start(Script::On).await;
    let busy = Busy::start().await;
    let mut nameless = request("later", "", "Nobody", "2026-11-15T12:00:00Z");
    nameless["email"] = json!("");
    let event = busy.world.post(&nameless).await.event();
    sign_in(&browser, &busy.world).await;
    browser.open(&format!("{}/events/{event}", busy.world.admin)).await;
    browser.run("for (const fold of document.querySelectorAll('details.fold')) fold.open = true; return true").await;
    browser.type_into("form[action$='/identify'] input[name=email]", "ada@example.com").await;
    browser.type_into("form[action$='/identify'] input[name=reason]", "she called").await;
    browser.click("form[action$='/identify'] button").await;
    browser.sees("Identity supplied later").await;
    browser.sees("she called").await;
    browser.sees(&busy.person).await;
    browser.close().await;
}
