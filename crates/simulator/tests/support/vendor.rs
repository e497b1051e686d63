//! Vendors' own clients: installed once into `target/vendor-clients` and run as processes. A failed installation fails the test:
//! without real clients the simulators' fidelity is unverified.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vendor")
}

pub(crate) fn run(what: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: cannot start {command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what} failed ({})\n{stdout}\n{stderr}", output.status);
    stdout
}

/// What a script printed last.
pub(crate) fn results(what: &str, command: &mut Command) -> Value {
    let stdout = run(what, command);
    let last = stdout.lines().last().expect("the script prints its results");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// Folder of the clients that this list names, and its content; `install` runs unless it did so with the same list.
fn installed(name: &str, list: &Path, install: impl FnOnce(&Path, &str)) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp is in target");
    let folder = target.join("vendor-clients").join(name);
    let wanted = std::fs::read_to_string(list).expect("the list of packages");
    let marker = folder.join("installed");
    if !std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        std::fs::create_dir_all(&folder).expect("target is writable");
        install(&folder, &wanted);
        std::fs::write(&marker, wanted).expect("target is writable");
    }
    folder
}

/// Python with the packages of a list.
pub(crate) fn python(name: &str, list: &Path) -> PathBuf {
    let folder = installed(name, list, |folder, _| {
        let environment = ["-m", "venv", "--clear"];
        run("creating a Python environment", Command::new("python3").args(environment).arg(folder));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run("installing clients from PyPI", Command::new(folder.join("bin/python")).args(install).arg(list));
    });
    folder.join("bin/python")
}

/// Folder with the packages of a `package.json`.
pub(crate) fn node(name: &str, list: &Path) -> PathBuf {
    installed(name, list, |folder, wanted| {
        std::fs::write(folder.join("package.json"), wanted).expect("target is writable");
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
        run("installing clients from npm", Command::new("npm").args(install).current_dir(folder));
    })
}
