//! Installs what tests need from PyPI and npm, once, into `target/vendor-signers`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the scripts and the lists of packages lie.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/intake/vendor")
}

/// Where everything is installed.
pub(crate) fn installed() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp lies in target");
    target.join("vendor-signers")
}

/// Runs a command that must succeed, and answers what it printed.
pub(crate) fn run(what: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {command:?} did not start: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what} failed ({})\n{said}\n{complained}", output.status);
    said
}

/// Runs `install` unless the folder already holds what `wanted` lists.
pub(crate) fn once(folder: &Path, wanted: &str, install: impl FnOnce()) {
    let mark = folder.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return;
    }
    std::fs::create_dir_all(folder).expect("a folder in target");
    install();
    std::fs::write(&mark, wanted).expect("a mark in target");
}

/// The folder of a Python environment with the packages of a list.
pub(crate) fn python_with(name: &str, list: &str) -> PathBuf {
    let folder = installed().join(name);
    let list = scripts().join(list);
    let wanted = std::fs::read_to_string(&list).expect("the list of packages");
    once(&folder, &wanted, || {
        run("creating a Python environment", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run("installing from PyPI", Command::new(folder.join("bin/python")).args(install).arg(&list));
    });
    folder
}
