//! Checks the parameters of `http.upsert`.

use super::diagnostics::Report;
use super::node::YamlNode;
use super::parameters::{BODIES, is_filled_in};

pub(super) const FIND: [&str; 9] = ["method", "url", "headers", "query", "json", "form", "text", "records", "id"];
pub(super) const CREATE: [&str; 8] = ["method", "url", "headers", "query", "json", "form", "text", "id"];
pub(super) const UPDATE: [&str; 8] = ["method", "url", "headers", "query", "json", "form", "text", "id_at"];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Checks what each request needs.
pub(super) fn check(report: Report<'_>, node: &YamlNode) {
    for (name, needed) in [("find", &["url", "id"][..]), ("create", &["url", "id"]), ("update", &["url"])] {
        if let Some(request) = node.get(name).filter(|request| request.entries().is_some()) {
            check_request(report, name, request, needed);
        }
    }
    pointer(report, node, "error_at");
    if let Some(retry_on) = node.get("retry_on").filter(|_| node.get("error_at").is_none()) {
        report
            .warning(retry_on.span, "unused-key", "`retry_on` is not used without `error_at`")
            .hint("add `error_at`, the JSON pointer to the error of an answer");
    }
}

fn check_request(report: Report<'_>, name: &str, request: &YamlNode, needed: &[&str]) {
    for key in needed.iter().filter(|key| request.get(key).is_none_or(YamlNode::is_null)) {
        report.error(request.span, "missing-parameter", format!("`{name}` needs `{key}`"));
    }
    let bodies = request.entries().unwrap_or_default().iter().filter(|entry| BODIES.contains(&entry.key.as_str()));
    if let Some(second) = bodies.clone().nth(1) {
        report
            .error(second.key_span, "exclusive-keys", "a request has one body: `json`, `form` or `text`")
            .hint("remove one of them");
    }
    if let Some(method) = request.get("method").filter(|method| !is_filled_in(method))
        && !method.text().is_some_and(|word| METHODS.contains(&word))
    {
        let message = format!("`{name}.method` must be {}", METHODS.join(", "));
        report.error(method.span, "wrong-type", message);
    }
    pointer(report, request, "records");
    pointer(report, request, "id");
    check_id_places(report, name, request);
}

/// An update that does not name its record changes none, or all.
fn check_id_places(report: Report<'_>, name: &str, request: &YamlNode) {
    if name != "update" {
        return;
    }
    let in_url = request.get("url").and_then(YamlNode::text).is_some_and(|url| url.contains("{id}"));
    let Some(places) = request.get("id_at") else {
        if !in_url && request.get("url").is_some() {
            report
                .error(request.span, "missing-parameter", "`update` does not name its record")
                .hint("write {id} in its url, or `id_at` with the place of the id in its body, such as /params/0/0");
        }
        return;
    };
    for place in places.items().unwrap_or(std::slice::from_ref(places)) {
        match place.text().filter(|text| text.starts_with('/')) {
            None => report
                .error(place.span, "wrong-type", "`id_at` must be a JSON pointer, or a list of them")
                .hint("such as /params/0/0"),
            Some(text) => {
                let body = ["json", "form"].iter().find_map(|body| request.get(body));
                let is_there = body.is_some_and(|body| body.to_value().pointer(text).is_some());
                if is_there {
                    continue;
                }
                report
                    .error(place.span, "bad-value", format!("the body of `update` has no place `{text}`"))
                    .hint("write null there: the id of the record takes its place")
            }
        };
    }
}

fn pointer(report: Report<'_>, node: &YamlNode, name: &str) {
    let Some(value) = node.get(name) else { return };
    if !value.text().is_some_and(|text| text.is_empty() || text.starts_with('/')) {
        report
            .error(value.span, "wrong-type", format!("`{name}` must be a JSON pointer"))
            .hint("such as /result/0/id; an empty text is the whole answer");
    }
}
