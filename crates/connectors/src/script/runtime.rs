//! Which runtimes this machine has, and how each is started with a program in its hand.

use std::process::{Command, Stdio};

use sluice_domain::script::Runtime;

/// A version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

/// Whether this machine has the runtime, in a version that will do. The message is for the author of the script.
pub fn find_runtime(runtime: Runtime) -> Result<(), String> {
    let Version(major, minor) = version(runtime)?;
    if major < runtime.version_min() {
        let program = runtime.program();
        return Err(format!("{runtime} is needed, and the `{program}` of this machine is version {major}.{minor}"));
    }
    Ok(())
}

/// The version of the program that is found on the path.
pub(crate) fn version(runtime: Runtime) -> Result<Version, String> {
    let program = runtime.program();
    let missing = |why: String| format!("{runtime} is needed, and {why}");
    let output =
        Command::new(program).arg("--version").stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(format!("there is no `{program}` on this machine")),
            _ => missing(format!("`{program}` cannot be started: {error}")),
        })?;
    let text = [output.stdout, output.stderr].concat();
    parse_version(&String::from_utf8_lossy(&text))
        .ok_or_else(|| missing(format!("`{program} --version` does not tell its version")))
}

/// The first two numbers with a dot between them: `v20.11.1`, `Python 3.11.2`, `GNU bash, version 5.2.15(1)`.
fn parse_version(text: &str) -> Option<Version> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
        let mut parts = word.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Version(major, minor))
    })
}

/// What node needs to be told so that a `.js` file beside the configuration may use `import` without a package.json.
/// Later versions look at the file itself.
pub(crate) fn node_flag(version: Version) -> Option<&'static str> {
    let told = |from, to| version >= from && version < to;
    let needed = told(Version(18, 19), Version(19, 0))
        || told(Version(20, 10), Version(20, 19))
        || told(Version(21, 0), Version(22, 7));
    needed.then_some("--experimental-default-type=module")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_programs_tell_them() {
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
    fn only_the_versions_between_need_to_be_told() {
        for (version, told) in [
            (Version(18, 18), false),
            (Version(18, 19), true),
            (Version(20, 9), false),
            (Version(20, 18), true),
            (Version(20, 19), false),
            (Version(22, 6), true),
            (Version(22, 7), false),
            (Version(24, 0), false),
        ] {
            assert_eq!(node_flag(version).is_some(), told, "{version:?}");
        }
    }

    #[test]
    fn a_runtime_that_is_not_there_is_named() {
        let problem = find_runtime(Runtime::Node(999)).unwrap_err();
        assert!(problem.starts_with("node:999 is needed, and"), "{problem}");
        assert_eq!(find_runtime(Runtime::Bash), Ok(()));
    }
}
