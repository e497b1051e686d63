//! Console: pages for people, over the commands and queries of `operate`.
//!
//! In: requests of browsers with a session.
//! Out: HTML, and redirects after an act.
//! Touches: `operate` as the signed-in user; `access` to sign in and out.
//! Never: the ledger; decides what a user may do; shows personal data that the user has not revealed with a reason.
//! If the process dies here: an act is committed with its audit entry, or has not happened.

mod alerts;
mod approvals;
mod assets;
mod balance;
mod chart;
mod configuration;
mod destination;
mod endpoints;
mod event_edits;
mod events;
mod failure_groups;
mod jobs;
mod measures;
mod node;
mod overview;
mod page;
mod pending;
mod people;
mod replays;
mod responses;
mod sign_in;
mod source;
mod state_map;
mod suppressions;
mod svg;
mod timeline;
mod users;
mod views;
mod visit;
mod workers;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use sluice_domain::access::oidc::{CALLBACK_PATH, START_PATH};

use crate::access::Access;
use crate::operate::Operator;
pub use page::PAGES;
use visit::FrameFacts;

/// Nothing but the console's own files; no inline script or style; no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sluice";

#[derive(Clone, Debug)]
pub(crate) struct Console {
    operator: Operator,
    access: Access,
    frame: FrameFacts,
}

/// Pages of the console. Every page but the sign-in needs a session; every change needs a form token too.
pub(crate) fn router(operator: Operator, access: Access) -> Router {
    Router::new()
        .route("/", get(overview::page))
        .route("/sign-in", get(sign_in::show).post(sign_in::send))
        .route(START_PATH, get(sign_in::start_openid))
        .route(CALLBACK_PATH, get(sign_in::finish_openid))
        .route("/sign-out", post(sign_in::out))
        .route("/search", post(events::search))
        .route("/events", get(events::list))
        .route("/events/{id}", get(events::show))
        .route("/events/{id}/reveal", post(events::reveal))
        .route("/events/{id}/edit", post(event_edits::sheet))
        .route("/events/{id}/edit/confirm", post(event_edits::confirm))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/resolve", post(jobs::resolve))
        .route("/dead-letters", get(jobs::dead_letters))
        .route("/dead-letters/drop", post(jobs::drop_jobs))
        .route("/dead-letters/groups/{id}/{act}", post(failure_groups::mark))
        .route("/sheets/drop", post(jobs::drop_sheet))
        .route("/sheets/replay", post(replays::sheet))
        .route("/unknown", get(jobs::unknown))
        .route("/replays", get(replays::list).post(replays::start))
        .route("/replays/{id}", get(replays::show))
        .route("/replays/{id}/{act}", post(replays::control))
        .route("/approvals", get(approvals::list).post(approvals::decide))
        .route("/sheets/approvals", post(approvals::sheet))
        .route("/sources", get(endpoints::sources))
        .route("/sources/{name}", get(source::show))
        .route("/sources/{name}/shape", post(source::accept_shape))
        .route("/destinations", get(endpoints::destinations))
        .route("/destinations/{name}", get(destination::show))
        .route("/workers", get(workers::list))
        .route("/responses", get(responses::list))
        .route("/alerts", get(alerts::list))
        .route("/alerts/{act}", post(alerts::act))
        .route("/suppressions", get(suppressions::list).post(suppressions::change))
        .route("/balance", get(balance::show))
        .route("/views", post(views::change))
        .route("/pause", post(endpoints::pause))
        .route("/resume", post(endpoints::resume))
        .route("/safe-mode", post(endpoints::safe_mode))
        .route("/configuration", get(configuration::list))
        .route("/configuration/{revision}", get(configuration::show))
        .route("/configuration/apply", post(configuration::apply))
        .route("/configuration/reload", post(pending::reload))
        .route("/configuration/shadow/stop", post(pending::stop_shadow))
        .route("/audit", get(node::audit))
        .route("/node", get(node::show))
        .route("/api", get(node::api))
        .route("/users", get(users::list).post(users::put))
        .route("/users/remove", post(users::remove))
        .route("/tokens", post(users::add_token))
        .route("/credentials/revoke", post(users::revoke))
        .route("/links", post(users::add_link))
        .route("/assets/{name}", get(assets::asset))
        .merge(people::routes())
        .layer(middleware::from_fn(guard))
        .with_state(Console { operator, access, frame: FrameFacts::default() })
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
