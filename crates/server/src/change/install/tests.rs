use super::*;
use crate::config;

fn files(texts: &[(&str, &str)]) -> Files {
    Files::from_texts(texts.iter().copied())
}

fn written(texts: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in texts {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn there(directory: &Path) -> Vec<(String, String)> {
    config::read(directory).unwrap().iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

const OLD: [(&str, &str); 3] = [("a.yml", "queues: [a1]"), ("b.yml", "queues: [b1]"), ("d/c.yml", "queues: [c1]")];
const NEW: [(&str, &str); 3] =
    [("a.yml", "queues: [a2]"), ("d/c.yml", "queues: [c1]"), ("e/f/new.json", "{\"queues\":[]}")];

fn owned(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn manifest() -> Manifest {
    Manifest::new("r2", "ann", "because")
}

#[test]
fn install_replaces_files_and_leaves_others() {
    let directory = written(&OLD);
    fs::create_dir(directory.path().join("secrets")).unwrap();
    fs::write(directory.path().join("secrets/TOKEN"), "x").unwrap();
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    put(directory.path(), &files(&OLD), &files(&NEW), manifest()).unwrap();
    assert_eq!(there(directory.path()), owned(&NEW));
    clear(directory.path()).unwrap();
    assert!(directory.path().join("secrets/TOKEN").exists() && directory.path().join("notes.txt").exists());
    assert_eq!(finish(directory.path()).unwrap(), None, "nothing is left behind");
}

#[test]
fn uncommitted_install_is_discarded_and_committed_one_finished() {
    // As a process leaves it that dies while it writes.
    let directory = written(&OLD);
    write_durably(&directory.path().join(DRAFT).join(TEXTS).join("a.yml"), "queues: [a2]").unwrap();
    assert_eq!(finish(directory.path()).unwrap(), None);
    assert_eq!(there(directory.path()), owned(&OLD));
    assert!(!directory.path().join(DRAFT).exists());
    // As one leaves it that dies between any two moves.
    for moved in 0..=3 {
        let directory = written(&OLD);
        let manifest =
            Manifest { write: vec!["a.yml".into(), "e/f/new.json".into()], remove: vec!["b.yml".into()], ..manifest() };
        stage(directory.path(), &[("a.yml", "queues: [a2]"), ("e/f/new.json", "{\"queues\":[]}")], &manifest).unwrap();
        let partly = Manifest {
            write: manifest.write.iter().take(moved).cloned().collect(),
            remove: manifest.remove.iter().take(moved.saturating_sub(2)).cloned().collect(),
            ..manifest.clone()
        };
        move_into_place(directory.path(), &partly).unwrap();
        assert_eq!(finish(directory.path()).unwrap(), Some(manifest.clone()), "after {moved}");
        assert_eq!(there(directory.path()), owned(&NEW), "after {moved}");
        // And once more, as when that process dies too.
        assert_eq!(finish(directory.path()).unwrap(), Some(manifest), "after {moved}");
        assert_eq!(there(directory.path()), owned(&NEW), "after {moved}");
    }
}

#[test]
fn invalid_paths_are_rejected() {
    for path in [
        "",
        "/etc/cron.d/x.yml",
        "../up.yml",
        "a/../../up.yml",
        "a//b.yml",
        "./a.yml",
        "a\\b.yml",
        ".hidden.yml",
        ".sluice/x.json",
        "secrets/TOKEN.json",
        "a/secrets/x.yml",
        "node_modules/a.json",
        "run.sh",
        "templates/cart.png",
        "lists/stop.csv",
        "notes.txt",
        "yml",
        "a.yml\n",
        "a/",
    ] {
        assert!(check_path(path).is_err(), "{path:?}");
    }
    for path in ["a.yml", "flows/a.YAML", "a b.json", "secrets.yml", "templates/cart.html", "lists/stop.txt"] {
        assert!(check_path(path).is_ok(), "{path:?}");
    }
    let deep = format!("{}a.yml", "d/".repeat(DEPTH_MAX));
    assert!(check_path(&deep).is_err());
}

#[cfg(unix)]
#[test]
fn link_is_neither_followed_nor_replaced() {
    let elsewhere = written(&[("a.yml", "queues: [theirs1]")]);
    let directory = written(&[]);
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("a.yml"), directory.path().join("a.yml")).unwrap();
    for path in ["linked/new.yml", "a.yml"] {
        let refused = put(directory.path(), &files(&[]), &files(&[(path, "queues: [x1]")]), manifest());
        assert!(matches!(refused, Err(InstallError::Path { .. })), "{path}: {refused:?}");
    }
    assert_eq!(there(elsewhere.path()), owned(&[("a.yml", "queues: [theirs1]")]));
}

#[test]
fn single_file_node_accepts_only_that_file() {
    let directory = written(&[("one.yml", "queues: [a1]"), ("other.yml", "queues: [b1]")]);
    let config = directory.path().join("one.yml");
    let old = config::read(&config).unwrap();
    assert!(matches!(put(&config, &old, &files(&NEW), manifest()), Err(InstallError::SingleFile { .. })));
    put(&config, &old, &files(&[("one.yml", "queues: [a2]")]), manifest()).unwrap();
    assert_eq!(there(directory.path()), owned(&[("one.yml", "queues: [a2]"), ("other.yml", "queues: [b1]")]));
}
