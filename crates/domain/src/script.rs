//! What runs a script, as `uses:` names it.

use std::fmt;

/// A runtime and the oldest version of it that will do.
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
    /// How one of each is written, for messages.
    pub const EXAMPLES: [&'static str; 3] = ["node:18", "python:3", "bash"];

    /// The runtime that this names: `node:18`, `node`, `python:3`, `bash`. A version is a whole number.
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

    /// The program behind it.
    pub fn program(self) -> &'static str {
        match self {
            Runtime::Node(_) => "node",
            Runtime::Python(_) => "python3",
            Runtime::Bash => "bash",
        }
    }

    /// The oldest major version that will do; 0 for any.
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
    fn runtimes_are_known_by_their_names() {
        for text in Runtime::EXAMPLES {
            assert_eq!(Runtime::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Runtime::parse("node"), Some(Runtime::Node(18)));
        for wrong in ["nodejs:18", "node:", "node:x", "node:0", "node:18.1", "bash:5", "ruby:3", ""] {
            assert_eq!(Runtime::parse(wrong), None, "{wrong}");
        }
    }
}
