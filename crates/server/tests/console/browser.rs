//! A headless browser, driven over the WebDriver protocol (W3C). Only what these tests need.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::until;

pub(crate) struct Browser {
    driver: Child,
    client: reqwest::Client,
    session: String,
    _profile: tempfile::TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    On,
    Off,
}

impl Browser {
    pub(crate) async fn start(script: Script) -> Browser {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let spawned = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let driver = spawned.expect("chromedriver is installed: run scripts/install-browser");
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(120)).build().unwrap();
        let base = format!("http://127.0.0.1:{port}");
        until(|| async { client.get(format!("{base}/status")).send().await.ok() }).await;
        let profile = tempfile::tempdir().unwrap();
        let preferences = match script {
            Script::On => json!({}),
            Script::Off => json!({ "profile.managed_default_content_settings.javascript": 2 }),
        };
        let capabilities = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:loggingPrefs": { "browser": "ALL" }, "goog:chromeOptions": {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
                     format!("--user-data-dir={}", profile.path().display())],
            "prefs": preferences,
        } } } });
        let made: Value =
            client.post(format!("{base}/session")).json(&capabilities).send().await.unwrap().json().await.unwrap();
        let id = made["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}"));
        Browser { driver, client, session: format!("{base}/session/{id}"), _profile: profile }
    }

    async fn call(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.session)).json(&body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{path} {body}: {}", answer["value"]);
        answer["value"].clone()
    }

    pub(crate) async fn open(&self, url: &str) {
        self.call("/url", json!({ "url": url })).await;
    }

    /// Runs a function body in the page, which the driver may do even where pages may not.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.call("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Serious and critical findings of axe-core on this page.
    pub(crate) async fn findings(&self, axe: &str) -> Vec<String> {
        self.run(axe).await;
        let script = "const done = arguments[arguments.length - 1];\
                      axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations), (error) => done([{ impact: 'critical', id: String(error), nodes: [] }]));";
        let found = self.call("/execute/async", json!({ "script": script, "args": [] })).await;
        let is_serious = |finding: &&Value| ["serious", "critical"].iter().any(|impact| finding["impact"] == *impact);
        let told = |finding: &Value| format!("{}: {}", finding["id"], finding["nodes"][0]["html"]);
        found.as_array().unwrap().iter().filter(is_serious).map(told).collect()
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.call("/element", json!({ "using": "css selector", "value": selector })).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Clicks, after scrolling there as a person would: on a phone a bar covers the bottom.
    pub(crate) async fn click(&self, selector: &str) {
        const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
        let element = self.element(selector).await;
        let script = "arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })";
        self.call("/execute/sync", json!({ "script": script, "args": [{ ELEMENT: element }] })).await;
        self.call(&format!("/element/{element}/click"), json!({})).await;
    }

    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.call(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    /// Presses keys wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        self.call("/actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": strokes }] })).await;
    }

    /// Moves the focus with the tabulator key until it is on what the selector names.
    pub(crate) async fn tab_to(&self, selector: &str) {
        const TAB: &str = "\u{e004}";
        let script = format!("return document.activeElement.matches({})", json!(selector));
        for _ in 0..300 {
            if self.run(&script).await == json!(true) {
                return;
            }
            self.press(TAB).await;
        }
        panic!("the tabulator key does not reach {selector}");
    }

    /// Name and value of every cookie, those that scripts cannot read too.
    pub(crate) async fn cookies(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let cookies = self.read("/cookie").await;
        cookies.as_array().unwrap().iter().map(|cookie| (text(&cookie["name"]), text(&cookie["value"]))).collect()
    }

    async fn read(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.session));
        request.send().await.unwrap().json::<Value>().await.unwrap()["value"].clone()
    }

    pub(crate) async fn address(&self) -> String {
        self.read("/url").await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn html(&self) -> String {
        self.read("/source").await.as_str().unwrap().to_owned()
    }

    /// Waits until the page contains a text.
    pub(crate) async fn sees(&self, text: &str) {
        until(|| async { self.html().await.contains(text).then_some(()) }).await;
    }

    /// Waits until the path of the page begins so.
    pub(crate) async fn arrives_at(&self, start: &str) {
        until(|| async {
            let address = self.address().await;
            let path = address.splitn(4, '/').nth(3).unwrap_or_default();
            format!("/{path}").starts_with(start).then_some(())
        })
        .await;
    }

    /// Emulates a colour scheme and a width.
    pub(crate) async fn emulate(&self, scheme: &str, width: u32) {
        self.emulate_size(scheme, width, 900).await;
    }

    pub(crate) async fn emulate_size(&self, scheme: &str, width: u32, height: u32) {
        let cdp = |command: &str, params: Value| json!({ "cmd": command, "params": params });
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("/goog/cdp/execute", cdp("Emulation.setEmulatedMedia", media)).await;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("/goog/cdp/execute", cdp("Emulation.setDeviceMetricsOverride", size)).await;
    }

    /// Errors of the browser's console, such as violations of the content security policy.
    pub(crate) async fn errors(&self) -> Vec<String> {
        let entries = self.call("/se/log", json!({ "type": "browser" })).await;
        let is_error = |entry: &&Value| entry["level"] == "SEVERE";
        entries.as_array().unwrap().iter().filter(is_error).map(|entry| entry["message"].to_string()).collect()
    }

    /// Height of the whole page.
    pub(crate) async fn page_height(&self) -> u32 {
        let height = self.run("return document.documentElement.scrollHeight").await;
        u32::try_from(height.as_u64().unwrap()).unwrap()
    }

    /// Writes a picture of the page below the directory that `SLUICE_SCREENSHOTS` names, if it does.
    pub(crate) async fn picture(&self, name: &str) {
        let Ok(directory) = std::env::var("SLUICE_SCREENSHOTS") else { return };
        let picture = self.read("/screenshot").await;
        let bytes = data_encoding::BASE64.decode(picture.as_str().unwrap().as_bytes()).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(format!("{directory}/{name}.png"), bytes).unwrap();
    }

    pub(crate) async fn close(mut self) {
        let _ = self.client.delete(&self.session).send().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
    }
}
