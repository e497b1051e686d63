//! Sign in and out.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header, request};
use axum::response::{IntoResponse, Redirect, Response};
use sluice_domain::access::oidc::Callback;
use sluice_domain::access::own_path;

use super::page::rendered;
use super::visit::{Fields, Sent, peer_of, read_form};
use super::{Console, assets};
use crate::access::{ProviderLink, StartedSignIn, clear_pending};

#[derive(Debug, Template)]
#[template(path = "console/sign_in.html")]
struct SignInPage {
    style: &'static str,
    problem: Option<String>,
    link: String,
    user: String,
    /// Page to open afterwards.
    next: String,
    provider: Option<ProviderLink>,
}

/// The sign-in page, with what went wrong before.
pub(super) fn page(console: &Console, status: StatusCode, problem: Option<String>) -> Response {
    show_page(console, status, problem, &Fields::default())
}

fn show_page(console: &Console, status: StatusCode, problem: Option<String>, fields: &Fields) -> Response {
    let next = own_path(fields.get("next")).to_owned();
    let page = SignInPage {
        style: assets::style_path(),
        link: if problem.is_none() { fields.get("link").to_owned() } else { String::new() },
        problem,
        user: fields.get("user").to_owned(),
        provider: console.access.provider_link(&next),
        next,
    };
    rendered(&page, status)
}

/// Opening a link shows a button: programs that fetch addresses in messages do not use it up.
pub(super) async fn show(State(console): State<Console>, head: request::Parts) -> Response {
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(&console, refusal.status, Some(refusal.detail));
    }
    show_page(&console, StatusCode::OK, None, &Fields::parse(head.uri.query().unwrap_or_default()))
}

pub(super) async fn send(State(console): State<Console>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(&console, refusal.status, Some(refusal.detail));
    }
    let form = match read_form(&console, &head.headers, body).await {
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
        Err(refusal) => return show_page(&console, refusal.status, Some(refusal.detail), &form),
    };
    tracing::info!(user = session.user, address = %peer, "signed in to the console");
    with_cookies(Redirect::to(own_path(form.get("next"))).into_response(), [session.cookie])
}

fn with_cookies(mut response: Response, cookies: impl IntoIterator<Item = String>) -> Response {
    for cookie in cookies.into_iter().filter_map(|cookie| HeaderValue::from_str(&cookie).ok()) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Goes on at the OpenID provider. A link opens it: browsers apply `form-action` of the policy to where a form is redirected to.
pub(super) async fn start_openid(State(console): State<Console>, head: request::Parts) -> Response {
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(&console, refusal.status, Some(refusal.detail));
    }
    let fields = Fields::parse(head.uri.query().unwrap_or_default());
    match console.access.start_openid(fields.get("next")).await {
        Ok(StartedSignIn { address, cookie }) => with_cookies(Redirect::to(&address).into_response(), [cookie]),
        Err(refusal) => show_page(&console, refusal.status, Some(refusal.detail), &fields),
    }
}

/// The provider sends the browser here.
pub(super) async fn finish_openid(State(console): State<Console>, head: request::Parts) -> Response {
    if let Err(refusal) = console.access.check_visitor(&head) {
        return page(&console, refusal.status, Some(refusal.detail));
    }
    let fields = Fields::parse(head.uri.query().unwrap_or_default());
    let callback = Callback {
        state: fields.option("state"),
        code: fields.option("code"),
        issuer: fields.option("iss"),
        error: fields.option("error"),
        error_description: fields.option("error_description"),
    };
    let peer = peer_of(&head);
    let response = match console.access.finish_openid(callback, &head.headers, peer).await {
        Ok((session, next)) => {
            tracing::info!(user = session.user, address = %peer, "signed in to the console by OpenID Connect");
            with_cookies(Redirect::to(&next).into_response(), [session.cookie])
        }
        Err(refusal) => page(&console, refusal.status, Some(refusal.detail)),
    };
    with_cookies(response, clear_pending())
}

pub(super) async fn out(State(console): State<Console>, sent: Sent) -> Response {
    let user = sent.visit.operator.whoami().name;
    let cookies = match console.access.sign_out(&sent.visit.session, &user).await {
        Ok(cookies) => cookies,
        Err(refusal) => return page(&console, refusal.status, Some(refusal.detail)),
    };
    with_cookies(Redirect::to("/sign-in").into_response(), cookies)
}
