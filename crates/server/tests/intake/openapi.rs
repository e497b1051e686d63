//! The intake does what its OpenAPI description says, whatever is posted: schemathesis makes requests up from it and compares.

use std::process::Command;

use serde_json::{Value, json};

use crate::fixture::World;
use crate::install::{python_with, scripts};

const SECRET: &str = "a-secret-of-the-intake";

const FLOWS: &str = r#"
name: leads
triggers: [{ http: { path: /in/leads, verify: { scheme: bearer, secret: "${secrets.INTAKE}" }, idempotency: { key_from: body.id }, body: { format: json } } }]
event:
  type: lead
  schema:
    type: object
    required: [id, email]
    properties: { id: { type: string, minLength: 1, maxLength: 64, pattern: "^[a-z0-9]+$" }, email: { type: string }, amount: { type: integer, minimum: 0, maximum: 1000000 } }
steps: [{ queue: leads }]
---
name: signed
triggers: [{ http: { path: /in/signed, verify: { scheme: github, secret: "${secrets.INTAKE}" }, idempotency: { key_from: fingerprint } } }]
event: { type: push }
steps: [{ queue: leads }]
---
name: batch
triggers: [{ http: { path: /in/batch, verify: { scheme: bearer, secret: "${secrets.INTAKE}" }, body: { events: [] }, idempotency: { key_from: fingerprint } } }]
event: { type: thing }
steps: [{ queue: leads }]
---
name: local
triggers: [{ http: { path: /in/local, idempotency: { key_from: fingerprint } } }]
event: { type: note }
steps: [{ queue: leads }]
"#;

async fn start() -> World {
    let files = [("flows.yml", FLOWS), ("queues.yml", "queues: [leads]\n")];
    World::start_with_secrets(&files, &[("INTAKE", SECRET)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flow_is_described_with_its_proof_its_body_and_its_answers() {
    let world = start().await;
    let api = world.get("/openapi/intake.json").await;
    let leads = &api["paths"]["/in/leads"]["post"];
    assert_eq!(leads["security"], json!([{"leads": []}]));
    assert_eq!(api["components"]["securitySchemes"]["leads"], json!({"type": "http", "scheme": "bearer"}));
    let body = &leads["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body["required"], json!(["id", "email"]), "{leads}");
    let statuses: Vec<&String> = leads["responses"].as_object().unwrap().keys().collect();
    assert_eq!(statuses, ["202", "400", "401", "408", "413", "415", "422", "429", "503"]);
    let signed = &api["paths"]["/in/signed"]["post"];
    assert_eq!(signed["parameters"][0]["name"], "x-hub-signature-256", "{signed}");
    let batch = &api["paths"]["/in/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(batch["type"], "array", "{batch}");
    let local = &api["paths"]["/in/local"]["post"];
    assert!(local["responses"].get("401").is_none() && local["responses"].get("403").is_some(), "{local}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_answer_that_is_not_described() {
    let world = start().await;
    let api = world.directory.path().join("intake.json");
    std::fs::write(&api, world.get("/openapi/intake.json").await.to_string()).unwrap();
    let (intake, folder) = (world.intake.clone(), world.directory.path().to_owned());
    let said = tokio::task::spawn_blocking(move || {
        let environment = python_with("schemathesis", "schemathesis.txt");
        let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method";
        let mut command = Command::new(environment.join("bin/schemathesis"));
        command.arg("run").arg(api).args(["--url", &intake, "--checks", checks, "--max-examples", "50", "--seed", "7"]);
        command.args([
            "--phases",
            "coverage,fuzzing",
            "--workers",
            "2",
            "--suppress-health-check",
            "all",
            "--no-color",
        ]);
        command.current_dir(folder).env("SCHEMATHESIS_HOOKS", "schemathesis_hooks").env("INTAKE_SECRET", SECRET);
        command.env("PYTHONPATH", scripts()).env("PYTHONDONTWRITEBYTECODE", "1").env("NO_PROXY", "*");
        crate::install::run("schemathesis", &mut command)
    });
    let said = said.await.unwrap();
    // It only means something if requests got past every proof.
    for source in ["leads", "signed", "batch", "local"] {
        let seen: Value = world.get(&format!("/api/v1/sources/{source}")).await;
        assert!(seen["accepted"].as_u64().unwrap() > 0, "nothing of {source} was accepted: {seen}\n{said}");
        assert!(source == "local" || seen["refused"].as_object().unwrap().len() > 1, "{seen}\n{said}");
    }
}
