//! Runtimes of scripts, as named in `uses:`.

use std::fmt;

/// A runtime and its minimum version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// `node:18`
    Node(u32),
    /// `python:3`
    Python(u32),
    /// `bash`
    Bash,
}

impl Runtime {
    /// One example of each, for messages.
    pub const EXAMPLES: [&'static str; 3] = ["node:18", "python:3", "bash"];

    /// Parses `node:18`, `node`, `python:3`, `bash`. A version is an integer.
    pub fn parse(text: &str) -> Option<Runtime> {
        let (name, version) = match text.split_once(':') {
            Some((name, version)) => (name, Some(version.parse().ok().filter(|version| *version > 0)?)),
            None => (text, None),
        };
        match (name, version) {
            ("node", version) => Some(Runtime::Node(version.unwrap_or(18))),
            ("python", version) => Some(Runtime::Python(version.unwrap_or(3))),
            ("bash", None) => Some(Runtime::Bash),
            _ => None,
        }
    }

    /// Name of the executable.
    pub fn program(self) -> &'static str {
        match self {
            Runtime::Node(_) => "node",
            Runtime::Python(_) => "python3",
            Runtime::Bash => "bash",
        }
    }

    /// Minimum major version; 0 for any.
    pub fn version_min(self) -> u32 {
        match self {
            Runtime::Node(version) | Runtime::Python(version) => version,
            Runtime::Bash => 0,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runtime::Node(version) => write!(f, "node:{version}"),
            Runtime::Python(version) => write!(f, "python:{version}"),
            Runtime::Bash => f.write_str("bash"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_names_round_trip() {
        for text in Runtime::EXAMPLES {
            assert_eq!(Runtime::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Runtime::parse("node"), Some(Runtime::Node(18)));
        for wrong in ["nodejs:18", "node:", "node:x", "node:0", "node:18.1", "bash:5", "ruby:3", ""] {
            assert_eq!(Runtime::parse(wrong), None, "{wrong}");
        }
    }
}
