//! What the documentation says is what the code does: examples compile, tables are complete, generated pages are fresh, links lead
//! somewhere.

#![allow(clippy::unwrap_used)]

#[path = "../../server/tests/config/editor/mod.rs"]
mod editor;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use sluice_domain::alert::kind::ALERTS;
use sluice_domain::history::measure::MEASURES;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{self, Colours, EnvironmentThenFiles, Files, SecretSource, compile, render_all};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace has a root")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every page, by its path from the root.
fn pages() -> BTreeMap<String, String> {
    fn gather(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                gather(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "md") {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    gather(&root().join("docs"), &mut found);
    for entry in std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "md") {
            found.push(entry);
        }
    }
    let name = |path: &PathBuf| path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
    found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Fenced blocks: what stands behind the fence, and what stands in it.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(info), false) => {
                found.push((info, String::new()));
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = &mut found.last_mut().expect("a block was opened").1;
                block.push_str(line);
                block.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!inside, "a block does not end");
    found
}

/// Has a value for every secret that an example may name.
#[derive(Debug)]
struct AnySecret;

impl SecretSource for AnySecret {
    fn lookup(&self, _: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from("a-secret-of-the-examples")))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

fn assert_without_problems(what: &str, files: &Files, secrets: &dyn SecretSource) {
    let compiled = compile(files, secrets);
    assert!(compiled.problems.is_empty(), "{what}:\n{}", render_all(&compiled.problems, files, Colours::None));
    assert!(compiled.config.is_some(), "{what}");
    editor::accepts(files);
}

#[test]
fn complete_examples_on_a_page_are_one_configuration_without_problems() {
    let mut complete = 0;
    for (name, page) in pages() {
        // A block that is named after a file is complete, and all of a page belong together; others are excerpts.
        let files: Vec<(String, String)> = blocks(&page)
            .into_iter()
            .filter_map(|(info, block)| Some((info.strip_prefix("yaml ")?.trim().to_owned(), block)))
            .collect();
        let paths: BTreeSet<&String> = files.iter().map(|(path, _)| path).collect();
        assert_eq!(paths.len(), files.len(), "{name} shows one file twice");
        if !files.is_empty() {
            complete += files.len();
            assert_without_problems(&name, &Files::from_texts(files), &AnySecret);
        }
    }
    assert!(complete >= 4, "only {complete} complete examples were found");
}

#[test]
fn every_example_directory_passes_the_check() {
    for entry in std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path()) {
        // Each file of this one is a configuration of its own; `example_destinations` of the server's tests checks and runs them.
        if entry.ends_with("destinations") {
            continue;
        }
        // The sample payloads of an example lie beside its configuration.
        let entry = Some(entry.join("config")).filter(|config| config.is_dir()).unwrap_or(entry);
        let files = config::read(&entry).unwrap();
        assert_without_problems(&entry.display().to_string(), &files, &EnvironmentThenFiles::new(&entry));
    }
}

/// Texts in quotes that follow each place where `before` stands, up to the first quote.
fn quoted_after<'a>(source: &'a str, before: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices(before) {
        let rest = &source[at + before.len()..];
        if let Some((between, rest)) = rest.split_once('"')
            && let Some((quoted, _)) = rest.split_once('"')
        {
            found.push((between, quoted));
        }
    }
    found
}

/// Status and code of every problem that the intake can answer, read from its source.
fn problems_of_the_intake() -> BTreeSet<(String, String)> {
    let statuses: BTreeMap<&str, u16> = BTreeMap::from([
        ("BAD_REQUEST", 400),
        ("UNAUTHORIZED", 401),
        ("FORBIDDEN", 403),
        ("NOT_FOUND", 404),
        ("METHOD_NOT_ALLOWED", 405),
        ("REQUEST_TIMEOUT", 408),
        ("PAYLOAD_TOO_LARGE", 413),
        ("UNSUPPORTED_MEDIA_TYPE", 415),
        ("UNPROCESSABLE_ENTITY", 422),
        ("TOO_MANY_REQUESTS", 429),
    ]);
    let compact = |path: &str| text(path).split_whitespace().collect::<String>();
    let mut found = BTreeSet::new();
    let mut add = |status: u16, code: &str| found.insert((status.to_string(), code.to_owned()));
    for name in ["admit", "prepare", "body", "decode", "server", "problems", "slack"] {
        let path = &format!("crates/server/src/intake/{name}.rs");
        let source = compact(path);
        for (between, code) in quoted_after(&source, "Problem::new(StatusCode::") {
            // What stands between is the status and a comma; more than that, and the code is not written there.
            if let Some(name) = between.strip_suffix(',')
                && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            {
                add(*statuses.get(name).unwrap_or_else(|| panic!("{path}: {name} is a new status")), code);
            }
        }
        for (between, code) in quoted_after(&source, "unavailable(") {
            if between.is_empty() {
                add(503, code);
            }
        }
        for (kind, status) in [("KeyProblem::", 400), ("MappingProblem::", 422)] {
            for (between, code) in quoted_after(&source, kind) {
                if between.ends_with("=>") && !between.contains(';') {
                    add(status, code);
                }
            }
        }
    }
    for (between, code) in quoted_after(&compact("crates/domain/src/payload.rs"), "PayloadProblem::") {
        if between.ends_with("=>") {
            add(400, code);
        }
    }
    for (between, code) in quoted_after(&compact("crates/domain/src/verify/error.rs"), "VerifyError::") {
        if between.ends_with("=>") {
            add(401, code);
        }
    }
    found
}

/// Rows of the tables on a page: the cells of those that begin with a cell like this.
fn rows(page: &str, first: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    page.lines().filter(|line| line.starts_with('|')).map(cells).filter(|cells| first(&cells[0])).collect()
}

#[test]
fn every_answer_of_the_intake_is_in_the_table() {
    let page = text("docs/http-answers.md");
    let listed: BTreeSet<(String, String)> = rows(&page, |cell| cell.parse::<u16>().is_ok_and(|status| status >= 400))
        .into_iter()
        .map(|cells| (cells[0].clone(), cells[1].trim_matches('`').to_owned()))
        .collect();
    let known = problems_of_the_intake();
    let described =
        sluice_server::intake::PROBLEMS.iter().map(|(status, code)| (status.to_string(), (*code).to_owned()));
    assert_eq!(described.collect::<BTreeSet<_>>(), listed, "what the OpenAPI description lists");
    assert!(known.len() > 30, "only {} were found in the source", known.len());
    let missing: Vec<_> = known.difference(&listed).collect();
    let invented: Vec<_> = listed.difference(&known).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not listed: {missing:?}\nnot in the source: {invented:?}");
}

#[test]
fn every_metric_that_a_page_names_is_in_the_reference() {
    let reference = text("docs/reference/metrics.md");
    let known: BTreeSet<&str> =
        reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(known.len() > 30, "{known:?}");
    // The changelog names former ones too.
    for (path, page) in pages().into_iter().filter(|(path, _)| path != "CHANGELOG.md") {
        for word in page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            // Tables of destinations begin so too.
            if word.starts_with("sluice_") && !["sluice_effects", "sluice_server"].contains(&word) {
                let name = word.strip_suffix("_bucket").unwrap_or(word);
                assert!(known.contains(name), "{path} names {word}");
            }
        }
    }
}

#[test]
fn every_measure_and_alert_is_in_the_table() {
    let page = text("docs/observability.md");
    let cells: Vec<String> =
        rows(&page, |cell| cell.starts_with('`')).into_iter().map(|cells| cells.join("|")).collect();
    for spec in &MEASURES {
        let row = format!("`{}`|{}|{}|{}", spec.name, spec.kind.as_str(), spec.labels.join(", "), spec.about);
        let row = row.replace("effect class", "[effect class](effects.md)");
        assert!(cells.contains(&row), "{row} is not in the table of measures");
    }
    for spec in &ALERTS {
        let row = format!("`{}`|{}|{}|", spec.name, spec.severity.as_str(), spec.subject);
        assert!(cells.iter().any(|cells| cells.starts_with(&row)), "{row} is not in the table of alerts");
    }
}

/// Words of a command as a shell splits them: double quotes keep words together.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let split = |(place, part): (usize, &str)| match place % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    };
    parts.flat_map(split).collect()
}

#[test]
fn every_alert_has_a_runbook_whose_commands_are_known() {
    for spec in &ALERTS {
        let page = text(&spec.kind.runbook());
        for section in ["## Meaning", "## First checks", "## Fix", "## Verify"] {
            assert!(page.contains(section), "{} has no {section}", spec.kind.runbook());
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (name, page) in pages().into_iter().filter(|(name, _)| name.starts_with("docs/runbooks/")) {
        let scripts = blocks(&page).into_iter().filter(|(language, _)| *language == "sh");
        for line in scripts.flat_map(|(_, script)| script.lines().map(str::to_owned).collect::<Vec<_>>()) {
            let Some(arguments) = line.strip_prefix("sluice ") else { continue };
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
            let output = command.args(words(arguments)).current_dir(directory.path()).output().unwrap();
            // No node runs there: what counts is that the command line is understood.
            let said = String::from_utf8_lossy(&output.stderr);
            assert_ne!(output.status.code(), Some(2), "{name}: {line}\n{said}");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} commands were found");
}

#[test]
fn links_lead_to_files_that_are_there() {
    for (name, page) in pages() {
        let directory = root().join(&name).parent().unwrap().to_owned();
        for (at, _) in page.match_indices("](") {
            let target = page[at + 2..].split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            assert!(directory.join(path).exists(), "{name} links to {target}, which is not there");
        }
    }
}

/// Text of every source file below a directory.
fn sources(directory: &Path, all: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, all);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&std::fs::read_to_string(&entry).unwrap());
        }
    }
}

#[test]
fn every_attack_names_a_test_that_exists() {
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    let functions: BTreeSet<&str> =
        all.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).map(str::trim).collect();
    let page = text("docs/security-model.md");
    let attacks = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| attack"));
    let mut count = 0;
    for line in attacks {
        let proof = line.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap();
        let tests: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "names no test: {line}");
        for test in tests {
            assert!(functions.contains(test), "there is no test `{test}`: {line}");
        }
        count += 1;
    }
    assert!(count > 40, "{count} attacks were found");
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = text("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let named = section.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let known: BTreeSet<&str> = named.map(|(name, _)| name).filter(|name| !name.starts_with("sluice-")).collect();
    let page = text("docs/decisions/0013-dependencies.md");
    let listed: Vec<Vec<String>> = rows(&page, |cell| cell != "crate" && !cell.starts_with('-'));
    let listed: BTreeSet<&str> = listed.iter().flat_map(|cells| cells[0].split(',').map(str::trim)).collect();
    let missing: Vec<_> = known.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&known).collect();
    assert!(missing.is_empty() && gone.is_empty(), "without a row: {missing:?}\nno longer used: {gone:?}");
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// The generated pages: what each is made of, and how it is made again.
#[test]
fn generated_pages_are_up_to_date() {
    let fresh = [
        ("docs/reference/configuration.md", config::reference(), "sluice reference configuration"),
        ("docs/reference/steps.md", config::steps(), "sluice reference steps"),
        ("docs/reference/actions.md", config::actions(), "sluice reference actions"),
        ("docs/reference/policies.md", config::policies(), "sluice reference policies"),
        ("docs/reference/expressions.md", config::expressions(), "sluice reference expressions"),
        ("docs/reference/api.json", sluice_server::operate::openapi(), "sluice reference api"),
        ("docs/reference/sluice.schema.json", pretty(&config::editor_schema()), "sluice reference schema"),
    ];
    for (path, made, command) in fresh {
        assert!(
            text(path).trim_end() == made.trim_end(),
            "{path} is not what the code says; make it again with `{command} > {path}`"
        );
    }
}

/// The commands that the program says it has.
fn commands() -> BTreeSet<String> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = help.split_once("Commands:\n").expect("the help lists commands");
    let names = rest.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_readme_lists_every_command() {
    let listed: BTreeSet<String> = rows(&text("README.md"), |cell| cell.starts_with("`sluice "))
        .into_iter()
        .flat_map(|cells| {
            let names =
                cells[0].split(',').map(|name| name.trim().trim_matches('`').trim_start_matches("sluice ").to_owned());
            names.collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(listed, commands());
}

#[test]
fn pages_that_the_program_generates_are_up_to_date() {
    for (name, path) in [
        ("cli", "docs/reference/cli.md"),
        ("metrics", "docs/reference/metrics.md"),
        ("alert-rules", "deploy/prometheus/alerts.yml"),
    ] {
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
        let output = check.args(["reference", name, "--check"]).arg(root().join(path)).output().unwrap();
        assert!(output.status.success(), "make it again with `sluice reference {name} > {path}`");
    }
}

/// A process that ends with the test.
struct Running(std::process::Child);

impl Running {
    fn start(command: &mut std::process::Command) -> Running {
        Running(command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address on which nobody listened a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Everything below the heading "Run it" of the README, on addresses of its own.
#[test]
fn commands_of_the_readme_work() {
    let program = env!("CARGO_BIN_EXE_sluice");
    let directory = tempfile::tempdir().unwrap();
    let (intake, admin, crm) = (free_address(), free_address(), free_address());
    let (config, data) = (directory.path().join("config"), directory.path().join("data"));
    std::fs::create_dir_all(config.join("secrets")).unwrap();
    for file in [
        "flow.yml",
        "queues.yml",
        "worker.yml",
        "destinations.yml",
        "secrets/CRM_CLIENT_SECRET",
        "secrets/WEBSITE_SECRET",
    ] {
        let text = text(&format!("examples/quickstart/{file}")).replace("127.0.0.1:8090", &crm);
        std::fs::write(config.join(file), text).unwrap();
    }
    let _crm = Running::start(std::process::Command::new(program).args(["sim", "--listen", &crm]));
    let mut up = std::process::Command::new(program);
    up.arg("up").arg(&config).arg("--data").arg(&data).args(["--intake", &intake, "--admin", &admin]);
    let _node = Running::start(&mut up);

    let readme = text("README.md");
    let (_, section) = readme.split_once("\n## Run it\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let shell: Vec<String> =
        blocks(section).into_iter().filter(|(info, _)| *info == "sh").map(|(_, block)| block).collect();
    assert_eq!(shell[0], "scripts/quickstart\n", "the first command is the one that starts it all");
    let wait = |what: &str, until: &str| {
        format!(
            "for _ in $(seq 300); do {until} && break; sleep 0.1; done; {until} || {{ echo 'no {what}' >&2; exit 1; }}\n"
        )
    };
    let ready = wait("node", "curl -sf http://127.0.0.1:8081/readyz >/dev/null");
    let done = wait("lead in the CRM", "[ -n \"$(target/debug/sluice jobs --state succeeded --json | grep job_1)\" ]");
    let script =
        format!("set -eu\nexport SLUICE_DATA=target/quickstart\n{ready}{}{done}{}", shell[1], shell[2..].concat())
            .replace("127.0.0.1:8080", &intake)
            .replace("127.0.0.1:8081", &admin)
            .replace("127.0.0.1:8090", &crm)
            .replace("target/debug/sluice", program)
            .replace("target/quickstart", &data.display().to_string());
    let output = std::process::Command::new("bash").arg("-c").arg(&script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("HTTP/1.1 202 Accepted").count(), 2, "{said}");
    assert_eq!(said.matches("idempotent-replayed: true").count(), 1, "{said}");
    assert_eq!(said.matches(r#""result":{"record":"#).count(), 1, "the duplicate is told the record: {said}");
    assert_eq!(said.matches("website:lead-1").count(), 1, "one record, not two: {said}");
    let shown = readme.lines().find(|line| line.starts_with("{\"event_id\"")).expect("the README shows an answer");
    // Every ledger has event ids of its own.
    let (before, after) = shown.split_once("evt_…").expect("the README leaves the id open");
    assert!(said.contains(before) && said.contains(after), "the README shows {shown}, which is not in {said}");
}
