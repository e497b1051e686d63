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

/// Rows of the reference page: name, kind and labels.
fn reference() -> Vec<(String, String, Vec<String>)> {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned(), labels)
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_page_is_valid_and_has_the_metrics_of_the_reference_page() {
    let world = World::start().await;
    for name in ["a", "a", "b"] {
        let event = world.post(&lead(name)).await.event();
        world.settled(&event).await;
    }
    let pause = serde_json::json!({ "target": "queue:leads", "reason": "test" });
    assert_eq!(world.act("/api/v1/pause", pause).await.status, 200);
    let scrape = |accept: &'static str| {
        let request = world.client.get(format!("{}/metrics", world.admin)).bearer_auth(world.token());
        async move { request.header("accept", accept).send().await.unwrap() }
    };
    // As a Prometheus asks that reads both.
    let open = scrape("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5").await;
    assert!(open.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text().await.unwrap().ends_with("# EOF\n"));
    let page = scrape("text/plain;version=0.0.4").await.text().await.unwrap();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: run scripts/install-prometheus");
    std::io::Write::write_all(&mut promtool.stdin.take().unwrap(), page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");

    let reference = reference();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut seen = 0;
    for (name, kind) in types {
        let row = reference.iter().find(|(other, ..)| other == name);
        let (_, kind_of_page, _) = row.unwrap_or_else(|| panic!("`{name}` is not in the reference"));
        assert_eq!(kind, kind_of_page, "{name}");
        seen += 1;
    }
    assert!(seen > 25, "{page}");
    for sample in page.lines().filter(|line| !line.starts_with('#')) {
        let name = sample.split(['{', ' ']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let row = reference.iter().find(|(other, ..)| other == name || Some(other.as_str()) == base).unwrap();
        let labels = sample.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
        for label in labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)) {
            assert!(label == "le" || row.2.iter().any(|known| known == label), "{sample}");
        }
    }
    for written in [
        "sluice_events_accepted_total{source=\"website\"} 2",
        "sluice_duplicates_total{source=\"website\"} 1",
        "sluice_paused{target=\"queue:leads\"} 1",
        "sluice_run_seconds_count{worker=\"to-crm\"} 2",
        "idempotency_hits_total 1",
        "contact_attempts_total 2",
    ] {
        assert!(page.contains(written), "{written} in\n{page}");
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
