//! Files of the console, embedded in the binary. The names of style and script contain their digest, so browsers keep them.

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const STYLE: &[u8] = include_bytes!("assets/console.css");
const SCRIPT: &[u8] = include_bytes!("assets/console.js");
const ICONS: &[u8] = include_bytes!("assets/icons.svg");
const ICON: &[u8] = include_bytes!("assets/icon.svg");
/// Characters of the digest in a name.
const DIGEST_CHARACTERS: usize = 16;

fn hashed(prefix: &str, bytes: &[u8], extension: &str) -> String {
    let digest = blake3::hash(bytes).to_hex();
    format!("/assets/{prefix}-{}.{extension}", &digest[..DIGEST_CHARACTERS])
}

pub(super) fn style_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| hashed("console", STYLE, "css"))
}

pub(super) fn script_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| hashed("console", SCRIPT, "js"))
}

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    const FOR_EVER: &str = "public, max-age=31536000, immutable";
    let path = format!("/assets/{name}");
    let (content, kind, cache) = match path.as_str() {
        path if path == style_path() => (STYLE, "text/css; charset=utf-8", FOR_EVER),
        path if path == script_path() => (SCRIPT, "text/javascript; charset=utf-8", FOR_EVER),
        "/assets/icons.svg" => (ICONS, "image/svg+xml", "public, max-age=3600"),
        "/assets/icon.svg" => (ICON, "image/svg+xml", "public, max-age=3600"),
        _ => return (StatusCode::NOT_FOUND, "no such file").into_response(),
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)], content).into_response()
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_template_has_inline_script_or_style() {
        let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/console");
        for entry in std::fs::read_dir(templates).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for forbidden in ["style=", "<style", "javascript:", " onclick", " onload", "http://", "https://"] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", path.display());
            }
            let is_external = |part: &str| part.starts_with(" type=\"module\" src=");
            assert!(text.split("<script").skip(1).all(is_external), "{}", path.display());
        }
    }
}
