//! Console: pages for people, over the commands and queries of `operate`.
//!
//! In: requests of browsers with a session.
//! Out: HTML, and redirects after an act.
//! Touches: `operate` as the signed-in user; `access` to sign in and out.
//! Never: the ledger; decides what a user may do; shows personal data that the user has not revealed with a reason.
//! If the process dies here: an act is committed with its audit entry, or has not happened.

mod approvals;
mod assets;
mod configuration;
mod endpoints;
mod events;
mod jobs;
mod node;
mod overview;
mod page;
mod replays;
mod sign_in;
mod svg;
mod users;
mod visit;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};

use crate::access::Access;
use crate::operate::Operator;

/// Nothing but the console's own files; no inline script or style; no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sluice";

#[derive(Clone, Debug)]
pub(crate) struct Console {
    operator: Operator,
    access: Access,
}

/// Pages of the console. Every page but the sign-in needs a session; every change needs a form token too.
pub(crate) fn router(operator: Operator, access: Access) -> Router {
    Router::new()
        .route("/", get(overview::page))
        .route("/sign-in", get(sign_in::show).post(sign_in::send))
        .route("/sign-out", post(sign_in::out))
        .route("/search", post(events::search))
        .route("/events", get(events::list))
        .route("/events/{id}", get(events::show))
        .route("/events/{id}/reveal", post(events::reveal))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/resolve", post(jobs::resolve))
        .route("/dead-letters", get(jobs::dead_letters))
        .route("/dead-letters/drop", post(jobs::drop_jobs))
        .route("/sheets/drop", post(jobs::drop_sheet))
        .route("/sheets/replay", post(replays::sheet))
        .route("/unknown", get(jobs::unknown))
        .route("/replays", get(replays::list).post(replays::start))
        .route("/replays/{id}", get(replays::show))
        .route("/replays/{id}/{act}", post(replays::control))
        .route("/approvals", get(approvals::list).post(approvals::decide))
        .route("/sheets/approvals", post(approvals::sheet))
        .route("/sources", get(endpoints::sources))
        .route("/sources/{name}", get(endpoints::source))
        .route("/destinations", get(endpoints::destinations))
        .route("/workers", get(endpoints::workers))
        .route("/pause", post(endpoints::pause))
        .route("/resume", post(endpoints::resume))
        .route("/safe-mode", post(endpoints::safe_mode))
        .route("/configuration", get(configuration::list))
        .route("/configuration/{revision}", get(configuration::show))
        .route("/configuration/apply", post(configuration::apply))
        .route("/audit", get(node::audit))
        .route("/node", get(node::show))
        .route("/api", get(node::api))
        .route("/users", get(users::list).post(users::put))
        .route("/users/remove", post(users::remove))
        .route("/tokens", post(users::add_token))
        .route("/credentials/revoke", post(users::revoke))
        .route("/links", post(users::add_link))
        .route("/assets/{name}", get(assets::asset))
        .layer(middleware::from_fn(guard))
        .with_state(Console { operator, access })
}

/// Adds the headers that bind a browser to this node.
async fn guard(request: Request, next: Next) -> Response {
    const HEADERS: [(HeaderName, &str); 5] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` browsers would send `Origin: null` with forms.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
