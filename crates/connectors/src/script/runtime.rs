//! Detects the installed script runtimes and their versions.

use std::process::{Command, Stdio};

use sluice_domain::script::Runtime;

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

/// Checks that the runtime is installed in a sufficient version. The message is for the author of the script.
pub fn find_runtime(runtime: Runtime) -> Result<(), String> {
    let Version(major, minor) = version(runtime)?;
    if major < runtime.version_min() {
        let program = runtime.program();
        return Err(format!("{runtime} is required, but the installed `{program}` has version {major}.{minor}"));
    }
    Ok(())
}

/// Version of the program found on PATH.
pub(crate) fn version(runtime: Runtime) -> Result<Version, String> {
    let program = runtime.program();
    let missing = |reason: String| format!("{runtime} is required, but {reason}");
    let output =
        Command::new(program).arg("--version").stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(format!("`{program}` is not installed on this machine")),
            _ => missing(format!("`{program}` cannot start: {error}")),
        })?;
    let text = [output.stdout, output.stderr].concat();
    parse_version(&String::from_utf8_lossy(&text))
        .ok_or_else(|| missing(format!("`{program} --version` prints no version")))
}

/// First two numbers joined by a dot: `v20.11.1`, `Python 3.11.2`, `GNU bash, version 5.2.15(1)`.
fn parse_version(text: &str) -> Option<Version> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
        let mut parts = word.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Version(major, minor))
    })
}

/// Flag that lets a `.js` file beside the configuration use `import` without a package.json. Later versions detect
/// the module type from the file.
pub(crate) fn node_flag(version: Version) -> Option<&'static str> {
    let within = |from, to| version >= from && version < to;
    let needed = within(Version(18, 19), Version(19, 0))
        || within(Version(20, 10), Version(20, 19))
        || within(Version(21, 0), Version(22, 7));
    needed.then_some("--experimental-default-type=module")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_output_of_each_runtime_parses() {
        for (text, expected) in [
            ("v20.11.1\n", Some(Version(20, 11))),
            ("Python 3.11.2\n", Some(Version(3, 11))),
            ("GNU bash, version 5.2.15(1)-release (x86_64)", Some(Version(5, 2))),
            ("unknown", None),
        ] {
            assert_eq!(parse_version(text), expected, "{text}");
        }
    }

    #[test]
    fn module_flag_is_set_only_for_versions_that_need_it() {
        for (version, needed) in [
            (Version(18, 18), false),
            (Version(18, 19), true),
            (Version(20, 9), false),
            (Version(20, 18), true),
            (Version(20, 19), false),
            (Version(22, 6), true),
            (Version(22, 7), false),
            (Version(24, 0), false),
        ] {
            assert_eq!(node_flag(version).is_some(), needed, "{version:?}");
        }
    }

    #[test]
    fn missing_runtime_is_named() {
        let problem = find_runtime(Runtime::Node(999)).unwrap_err();
        assert!(problem.starts_with("node:999 is required, but"), "{problem}");
        assert_eq!(find_runtime(Runtime::Bash), Ok(()));
    }
}
