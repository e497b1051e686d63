//! The admin API does what its OpenAPI description says: schemathesis makes requests up from it and compares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::fixture::{World, lead};
use crate::install::python_with;

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_described_with_its_problems() {
    let world = World::start().await;
    let api = world.get("/openapi.json").await;
    assert_eq!(api["security"], json!([{ "token": [] }]));
    let mut operations = 0;
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations += 1;
            for status in ["400", "401", "403", "404", "429", "503"] {
                let content = &operation["responses"][status]["content"];
                assert!(content.get("application/problem+json").is_some(), "{method} {path}: {status}");
            }
            let has_key = operation["parameters"].to_string().contains("Idempotency-Key");
            assert_eq!(has_key, method == "post", "{method} {path}");
        }
    }
    assert!(operations > 90, "{operations}");
}

/// Every file of this crate, which is the working directory of the node, with its length.
fn work_tree() -> BTreeMap<PathBuf, u64> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                _ => {
                    files.insert(entry.path(), entry.metadata().unwrap().len());
                }
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_answer_of_the_admin_api_that_is_not_described() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let folder = world.directory.path().join("schemathesis");
    std::fs::create_dir(&folder).unwrap();
    let api = folder.join("admin.json");
    // One key for all commands would let the first one of each be done alone.
    let mut description = world.get("/openapi.json").await;
    let operations = description["paths"].as_object_mut().unwrap().values_mut();
    for operation in operations.flat_map(|path| path.as_object_mut().unwrap().values_mut()) {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| parameter["name"] != "Idempotency-Key");
        }
    }
    // The node writes a key to an absolute path that does not exist, wherever that is on this machine.
    let to = &mut description["components"]["schemas"]["RotateRequest"]["properties"]["to"];
    assert!(to.is_object(), "the file of a new root key is described: {to}");
    *to = json!({ "type": "string", "pattern": "^[^/]*$" });
    let before = work_tree();
    std::fs::write(&api, description.to_string()).unwrap();
    let (admin, token) = (world.admin.clone(), world.token());
    let said = tokio::task::spawn_blocking(move || {
        let environment = python_with("schemathesis", "schemathesis.txt");
        let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method";
        let mut command = Command::new(environment.join("bin/schemathesis"));
        command.arg("run").arg(api).args(["--url", &admin, "--checks", checks, "--max-examples", "10", "--seed", "7"]);
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
        // The stream of changes does not end.
        command.args(["--exclude-path", "/api/v1/stream", "--request-timeout", "120"]);
        command.args([
            "--phases",
            "coverage,fuzzing",
            "--workers",
            "1",
            "--suppress-health-check",
            "all",
            "--no-color",
        ]);
        command.current_dir(folder).env("PYTHONDONTWRITEBYTECODE", "1").env("NO_PROXY", "*");
        crate::install::run("schemathesis", &mut command)
    });
    let said = said.await.unwrap();
    assert_eq!(work_tree(), before, "the node wrote outside of its own directories");
    // It only means something if requests got past the checks of callers and bodies.
    let audit: Value = world.get("/api/v1/audit?limit=500").await;
    assert!(audit["items"].as_array().unwrap().len() > 5, "hardly any command was done: {audit}\n{said}");
}
