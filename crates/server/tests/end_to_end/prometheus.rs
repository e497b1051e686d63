//! Prometheus itself reads the metrics page.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::fixture::{World, lead, until};

/// A Prometheus server that ends with the test.
struct Prometheus {
    process: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    fn start(world: &World) -> Prometheus {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let directory = world.directory.path().join(".prometheus");
        std::fs::create_dir(&directory).unwrap();
        let settings = format!(
            "scrape_configs: [{{job_name: sluice, scrape_interval: 1s, authorization: {{credentials: {}}}, \
             static_configs: [{{targets: [\"{}\"]}}]}}]",
            world.token(),
            world.admin.trim_start_matches("http://")
        );
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, settings).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed: run scripts/install-prometheus");
        Prometheus { process, url: format!("http://{address}") }
    }

    /// `None` while it does not answer.
    async fn get(&self, client: &reqwest::Client, path: &str) -> Option<Value> {
        let answer = client.get(format!("{}{path}", self.url)).send().await.ok()?;
        serde_json::from_str(&answer.text().await.ok()?).ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_counters_and_exemplars() {
    let world = World::start().await;
    let event = world.post(&lead("a")).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let prometheus = Prometheus::start(&world);
    let query = "/api/v1/query?query=sluice_intake_requests_total";
    let found = until(|| async {
        let answer = prometheus.get(&world.client, query).await?;
        answer["data"]["result"].as_array().filter(|rows| !rows.is_empty()).cloned()
    })
    .await;
    assert_eq!((&found[0]["metric"]["outcome"], &found[0]["value"][1]), (&"accepted".into(), &"1".into()), "{found:?}");
    let targets = prometheus.get(&world.client, "/api/v1/targets").await.unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");
    let query = "/api/v1/query_exemplars?query=sluice_effect_seconds_bucket&start=0&end=9999999999";
    let exemplars = prometheus.get(&world.client, query).await.unwrap();
    let trace = &exemplars["data"][0]["exemplars"][0]["labels"]["trace_id"];
    assert_eq!(trace.as_str().map(str::len), Some(32), "{exemplars}");
}
