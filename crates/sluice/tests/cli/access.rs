//! Who can read the files of a node and operate it.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::Value;

use crate::support::{Ran, Workplace};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Every file below the data directory.
fn files(data: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn files_of_a_node_are_private_from_the_first_start_with_any_umask() {
    let workplace = Workplace::alone();
    // As systemd creates a state directory.
    let data = workplace.path().join("state");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let node = workplace.up_with_umask("000", &[("SLUICE_DATA", "state")]);
    let command = |arguments: &[&str]| Ran::of(workplace.command(arguments).env("SLUICE_DATA", "state"));
    command(&["send", "website-leads", "payloads/lead.txt"]).ok();
    command(&["keys", "rotate"]).ok();
    assert_eq!(mode(&data), 0o700);
    let names: Vec<String> =
        files(&data).iter().map(|path| path.file_name().unwrap().to_string_lossy().into()).collect();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "root.key", "admin.token", "node.json"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    for path in files(&data) {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    // Commands find the token beside the ledger.
    command(&["status"]).ok();
    node.stop();
}

#[test]
fn listener_on_the_port_of_a_killed_node_does_not_receive_its_token() {
    let workplace = Workplace::alone();
    workplace.up(&[]).kill();
    let path = workplace.path().join(".sluice/node.json");
    let note: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let address = note["admin"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let Ok(listener) = TcpListener::bind(&address) else { return };
    listener.set_nonblocking(true).unwrap();
    let shown = workplace.run(&["status"]).ok();
    assert!(shown.stdout.contains("not running"), "{shown}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nothing was sent to it");
}

#[test]
fn unreadable_data_directory_is_reported_with_its_owner() {
    let workplace = Workplace::alone();
    let _node = workplace.up(&[]);
    let data = workplace.path().join(".sluice");
    let mut command = workplace.command(&["status"]);
    if std::fs::metadata(&data).unwrap().uid() == 0 {
        // Root reads everything: another user runs the command.
        std::fs::set_permissions(workplace.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(65_534).gid(65_534);
        // The build directory may be closed to other users.
        if let Err(error) = workplace.command(&["--version"]).uid(65_534).gid(65_534).output() {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            return;
        }
    } else {
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let refused = Ran::of(&mut command);
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("cannot be read") && refused.stderr.contains("It belongs to"), "{refused}");
}

#[test]
fn secret_that_every_user_can_read_is_a_warning() {
    let workplace = Workplace::alone();
    let secret = workplace.path().join("secrets/WEBSITE_SECRET");
    for (path, mode) in [(workplace.path(), 0o755), (&workplace.path().join("secrets"), 0o755), (&*secret, 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(workplace.path().join("secrets/HOOK_TOKEN"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    if !workplace.path().ancestors().all(|path| mode(path) & 0o001 != 0) {
        return;
    }
    let node = workplace.up(&[]);
    let log = node.log();
    assert!(log.contains("every user of this machine can read the secret"), "{log}");
    assert!(log.contains("secrets/WEBSITE_SECRET") && !log.contains("HOOK_TOKEN"), "{log}");
}

#[test]
fn command_without_an_actor_is_recorded_under_the_user_of_the_system() {
    let workplace = Workplace::alone();
    let _node = workplace.up(&[]);
    let run = |arguments: &[&str]| {
        let mut command = workplace.command(arguments);
        command.env_remove("SLUICE_ACTOR").env_remove("SUDO_USER").env("USER", "somebody-else");
        Ran::of(&mut command).ok()
    };
    run(&["pause", "replays", "--reason", "a test"]);
    run(&["resume", "replays", "--reason", "the test is over"]);
    let name = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let audit = workplace.json(&["audit", "--json"]);
    let lines: Vec<(&Value, &Value, &Value)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (&line["action"], &line["actor"], &line["detail"]))
        .collect();
    for (action, reason) in [("pause", "a test"), ("resume", "the test is over")] {
        let line = lines.iter().find(|line| line.0 == action).unwrap_or_else(|| panic!("{audit}"));
        assert_eq!((line.1.as_str(), line.2.as_str()), (Some(name.trim()), Some(reason)), "{audit}");
    }
    assert!(!audit.to_string().contains("unknown"), "{audit}");
}

#[test]
fn relative_file_for_a_new_root_key_is_one_below_the_callers_directory() {
    let workplace = Workplace::alone();
    let node = workplace.up(&[]);
    let elsewhere = workplace.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let rotate = |to: &str| {
        let mut command = workplace.command(&["keys", "rotate", "--to", to, "--config", ".."]);
        Ran::of(command.current_dir(&elsewhere))
    };
    let rotated = rotate("new.key").ok();
    let written = elsewhere.join("new.key");
    assert_eq!(mode(&written), 0o600);
    assert!(!workplace.path().join("new.key").exists(), "the working directory of the node");
    assert!(rotated.stdout.contains("/elsewhere/new.key"), "{rotated}");
    let again = rotate("new.key");
    assert!(again.code == 2 && again.stderr.contains("exists already"), "{again}");
    node.stop();
}
