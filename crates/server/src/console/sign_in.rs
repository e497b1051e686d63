//! Sign in and out.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header, request};
use axum::response::{IntoResponse, Redirect, Response};

use super::page::rendered;
use super::visit::{Fields, Sent, peer_of, read_form};
use super::{Console, assets};

#[derive(Debug, Template)]
#[template(path = "console/sign_in.html")]
struct SignInPage {
    style: &'static str,
    problem: Option<String>,
    link: String,
    user: String,
    /// Page to open afterwards.
    next: String,
}

/// The sign-in page, with what went wrong before.
pub(super) fn page(status: StatusCode, problem: Option<String>) -> Response {
    show_page(status, problem, &Fields::default())
}

fn show_page(status: StatusCode, problem: Option<String>, fields: &Fields) -> Response {
    let page = SignInPage {
        style: assets::style_path(),
        link: if problem.is_none() { fields.get("link").to_owned() } else { String::new() },
        problem,
        user: fields.get("user").to_owned(),
        next: own_page(fields.get("next")).to_owned(),
    };
    rendered(&page, status)
}

/// A path of this console; anything else is the overview.
fn own_page(next: &str) -> &str {
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    if is_own { next } else { "/" }
}

/// Opening a link shows a button: programs that fetch addresses in messages do not use it up.
pub(super) async fn show(State(console): State<Console>, head: request::Parts) -> Response {
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(refusal.status, Some(refusal.detail));
    }
    show_page(StatusCode::OK, None, &Fields::parse(head.uri.query().unwrap_or_default()))
}

pub(super) async fn send(State(console): State<Console>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(refusal.status, Some(refusal.detail));
    }
    let form = match read_form(&head.headers, body).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let (access, peer) = (&console.access, peer_of(&head));
    let signed_in = match form.option("link") {
        Some(link) => access.sign_in_with_link(&link, &head.headers, peer).await,
        None => {
            let password = form.all("password").pop().unwrap_or_default();
            access.sign_in_with_password(form.get("user"), password, &head.headers, peer).await
        }
    };
    let session = match signed_in {
        Ok(session) => session,
        Err(refusal) => return show_page(refusal.status, Some(refusal.detail), &form),
    };
    tracing::info!(user = session.user, address = %peer, "signed in to the console");
    let mut response = Redirect::to(own_page(form.get("next"))).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&session.cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

pub(super) async fn out(State(console): State<Console>, sent: Sent) -> Response {
    let user = sent.visit.operator.whoami().name;
    let cookies = match console.access.sign_out(&sent.visit.session, &user).await {
        Ok(cookies) => cookies,
        Err(refusal) => return page(refusal.status, Some(refusal.detail)),
    };
    let mut response = Redirect::to("/sign-in").into_response();
    for cookie in cookies.iter().filter_map(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_opens_pages_of_this_console_only() {
        assert_eq!(own_page("/events?state=dead"), "/events?state=dead");
        for next in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb"] {
            assert_eq!(own_page(next), "/", "{next}");
        }
    }
}
