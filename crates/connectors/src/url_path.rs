//! Paths of URLs: what must not lead to another path.

/// True if the path has a `.` or `..` segment, also in percent-encoded form: servers and proxies decode it, some of them with
/// encoded slashes, with backslashes or with path parameters (`..;x`).
pub(crate) fn has_dot_segment(path: &str) -> bool {
    if !path.contains('.') && !path.contains('%') {
        return false;
    }
    let decoded = decode(path);
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(name, b"." | b"..")
    })
}

/// Percent-decodes, and omits the control characters that URL parsers omit.
fn decode(path: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
        let escaped = match (*first, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        let (byte, taken) = escaped.map_or((*first, 1), |byte| (byte, 3));
        if !byte.is_ascii_control() {
            decoded.push(byte);
        }
        rest = &rest[taken..];
    }
    decoded
}

/// True if `path` is `base` or below it.
pub(crate) fn is_below(base: &str, path: &str) -> bool {
    let base = base.trim_end_matches('/');
    path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_found_in_every_form() {
        for path in [
            "/a/../b",
            "..",
            ".",
            "/a/.",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/a/..%2Fb",
            "/a\\..\\b",
            "/a/..%5Cb",
            "/a/..;x/b",
            "/a/.\t./b",
            "/a/%2e%0a%2e/b",
        ] {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in ["", "/", "/a.b/c..d/...", "/v1.0/x", "/a%2Fb", "/a%", "/%zz", "/..a", "/a..", "/%252e%252e/"] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }

    #[test]
    fn only_whole_segments_are_below_the_base() {
        for (base, path) in [("/", "/x"), ("/v1", "/v1"), ("/v1/", "/v1/x"), ("/v1", "/v1/")] {
            assert!(is_below(base, path), "{base} {path}");
        }
        for (base, path) in [("/v1", "/v10"), ("/v1", "/"), ("/v1", "/x/v1")] {
            assert!(!is_below(base, path), "{base} {path}");
        }
    }
}
