//! Tables on a terminal: its width, whole words, short ids, and `--wide`.

use std::process::Command;

use crate::support::Workplace;
use crate::support::scene::{Scene, scene};

/// Output of the command on a terminal of this width.
fn on_a_terminal(workplace: &Workplace, columns: usize, arguments: &str) -> String {
    let mut command = workplace.command(&[]);
    let program = command.get_program().to_owned();
    let line = format!("stty cols {columns} rows 50; {} {arguments}", program.to_string_lossy());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(workplace.path());
    for (name, value) in command.env("NO_COLOR", "1").get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let output = script.output().expect("script of util-linux runs");
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

/// Lines of the table, without the hints after it.
fn table(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| !line.is_empty()).collect()
}

#[test]
fn tables_use_the_width_of_the_terminal_and_break_no_words() {
    let Scene { workplace, .. } = &scene();
    for columns in [80, 200] {
        for command in ["jobs", "events", "dlq", "sources", "destinations", "audit", "revisions"] {
            let text = on_a_terminal(workplace, columns, command);
            assert!(table(&text).iter().all(|line| line.chars().count() <= columns), "{columns} {command}\n{text}");
        }
        let jobs = on_a_terminal(workplace, columns, "jobs");
        for word in ["lead-to-crm", "lead.created", "website"] {
            assert!(jobs.contains(word), "{columns} {word}\n{jobs}");
        }
    }
    let rows = |text: &str| table(text).len();
    let (narrow, broad) = (on_a_terminal(workplace, 80, "dlq"), on_a_terminal(workplace, 200, "dlq"));
    assert!(rows(&narrow) > rows(&broad), "{narrow}\n{broad}");
    let wide = on_a_terminal(workplace, 80, "dlq --wide");
    let piped = workplace.run(&["dlq"]).ok().stdout;
    assert_eq!(rows(&wide), rows(&piped), "one line for each row\n{wide}");
}

#[test]
fn short_id_of_a_terminal_is_accepted_and_a_pipe_gets_whole_ids() {
    let Scene { workplace, .. } = &scene();
    let whole = workplace.json(&["events", "--json"])["items"][0]["id"].as_str().unwrap().to_owned();
    let shown = on_a_terminal(workplace, 80, "events");
    let short = shown.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(short.len() == 17 && whole.starts_with(short), "{shown}");
    assert_eq!(workplace.json(&["events", "show", short, "--json"])["id"], whole.as_str());
    workplace.run(&["replay", short, "--dry-run"]);
    assert!(workplace.run(&["events"]).ok().stdout.contains(&whole));
    assert!(on_a_terminal(workplace, 80, "events --wide").contains(&whole));
    let refused = workplace.run(&["events", "show", &whole[..10]]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("no event has this id"), "{refused}");
}

#[test]
fn progress_of_the_demo_is_not_cut_by_warnings() {
    let workplace = Workplace::alone();
    let mut command = workplace.command(&["demo", "--for", "2s", "--rate", "5"]);
    let output = command.env_remove("SLUICE_LOG").output().unwrap();
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(!progress.contains("WARN") && !progress.contains("INFO"), "{progress}");
}

#[test]
fn top_fits_the_terminal_and_restores_it() {
    let Scene { workplace, .. } = &scene();
    for columns in [80, 200] {
        let text = on_a_terminal(workplace, columns, "top --once --interval 100ms");
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}\n{text}");
        for word in ["events", "website", "lead-to-crm", "crm", "CALLS/S"] {
            assert!(text.contains(word), "{columns} {word}\n{text}");
        }
    }
    let view = workplace.json(&["top", "--json", "--interval", "100ms"]);
    assert_eq!(view["workers"][0]["worker"], "lead-to-crm", "{view}");
    assert!(view["events_per_second"].is_number() && view["destinations"].is_array(), "{view}");
    let live = on_a_terminal(workplace, 80, "top --interval 200ms & sleep 2; kill -TERM $!; wait $!");
    assert!(live.contains("\u{1b}[?1049h\u{1b}[?25l") && live.contains("DESTINATION"), "{live:?}");
    assert!(live.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{live:?}");
}
