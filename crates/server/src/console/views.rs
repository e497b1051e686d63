//! Saved views: names for lists with their filter. The browser keeps them in a cookie of its user; they work without script, and
//! hold nothing but addresses of this console.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use sluice_domain::access::own_path;

use super::page::query_value;
use super::visit::{Fields, Sent, cookie};

const COOKIE: &str = "views";
const VIEWS_MAX: usize = 12;
const NAME_CHARACTERS_MAX: usize = 40;
/// Browsers keep cookies of up to 4 KiB.
const COOKIE_BYTES_MAX: usize = 3_500;
const LASTS_SECONDS: u32 = 366 * 86_400;

/// Name and address of each view. What is no page of this console is left out: a cookie is input like any other.
pub(super) fn saved_views(headers: &HeaderMap) -> Vec<(String, String)> {
    let Some(value) = cookie(headers, COOKIE) else { return vec![] };
    let views = value.split('.').filter_map(|view| {
        let fields =
            Fields::parse(&String::from_utf8(data_encoding::BASE64URL_NOPAD.decode(view.as_bytes()).ok()?).ok()?);
        let (name, path) = (fields.get("name").to_owned(), fields.get("path").to_owned());
        (!name.is_empty() && path.len() > 1 && own_path(&path) == path).then_some((name, path))
    });
    views.take(VIEWS_MAX).collect()
}

fn encoded(views: &[(String, String)]) -> String {
    let texts = views.iter().map(|(name, path)| {
        let text = format!("name={}&path={}", query_value(name), query_value(path));
        data_encoding::BASE64URL_NOPAD.encode(text.as_bytes())
    });
    texts.collect::<Vec<_>>().join(".")
}

/// The views with one more, or with another address under a known name. The oldest ones give way.
fn with(mut views: Vec<(String, String)>, name: &str, path: &str) -> Vec<(String, String)> {
    let name: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
    views.retain(|(known, _)| *known != name);
    views.push((name, path.to_owned()));
    while views.len() > 1 && (views.len() > VIEWS_MAX || encoded(&views).len() > COOKIE_BYTES_MAX) {
        views.remove(0);
    }
    views
}

/// Saves a view, or removes it.
pub(super) async fn change(sent: Sent) -> Response {
    let (name, path) = (sent.form.get("name"), own_path(sent.form.get("path")));
    let views = sent.visit.views().to_vec();
    let views = match sent.form.get("remove") {
        "yes" => views.into_iter().filter(|(known, _)| known != name).collect(),
        _ if name.is_empty() => views,
        _ => with(views, name, path),
    };
    let value = encoded(&views);
    let lasts = if views.is_empty() { 0 } else { LASTS_SECONDS };
    let mut response = sent.visit.done(Ok(path.to_owned())).await;
    let line = format!("{COOKIE}={value}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Lax");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("theme=dark; views={value}").parse().unwrap());
        saved_views(&headers)
    }

    fn pair(name: &str, path: &str) -> (String, String) {
        (name.to_owned(), path.to_owned())
    }

    #[test]
    fn views_survive_the_way_through_a_cookie() {
        let views =
            with(vec![pair("crm, dead", "/dead-letters?worker=crm&code=A%20B")], "überfällig", "/jobs?state=waiting");
        assert_eq!(read(&encoded(&views)), views);
        let again = with(views, "überfällig", "/jobs");
        assert_eq!((again.len(), again[1].1.as_str()), (2, "/jobs"));
    }

    #[test]
    fn cookie_of_a_stranger_leads_nowhere_else() {
        let hostile =
            [pair("x", "//evil.example"), pair("y", "https://evil.example"), pair("", "/jobs"), pair("z", "/")];
        assert_eq!(read(&encoded(&hostile)), []);
        assert_eq!(read("!!!.%%%"), []);
    }

    #[test]
    fn cookie_stays_small_enough_to_be_kept() {
        let mut views = vec![];
        for n in 0..40 {
            views = with(views, &format!("view {n}"), &format!("/jobs?code={}", "x".repeat(500)));
        }
        assert!(views.len() > 1 && encoded(&views).len() <= COOKIE_BYTES_MAX);
        assert_eq!(views.last().map(|(name, _)| name.as_str()), Some("view 39"));
    }
}
