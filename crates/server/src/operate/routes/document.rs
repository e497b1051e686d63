//! OpenAPI description of the admin API.

use utoipa::OpenApi;

use super::{
    approvals, change, clock, contacts, dead_letters, endpoints, events, guards, jobs, keys, node, pauses, replays,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluice admin API",
        description = "Queries and commands of operators. Times are RFC 3339; errors are application/problem+json with a stable code."
    ),
    paths(
        node::status,
        events::events,
        events::event,
        jobs::jobs,
        jobs::job,
        jobs::resolve,
        dead_letters::dead_letters,
        dead_letters::dead_reasons,
        dead_letters::drop_jobs,
        replays::start,
        replays::list,
        replays::show,
        replays::pause,
        replays::resume,
        replays::cancel,
        endpoints::sources,
        endpoints::source,
        endpoints::destinations,
        pauses::pauses,
        pauses::pause,
        pauses::resume,
        node::reload,
        change::plan_route,
        change::apply_route,
        change::revisions,
        change::revision,
        node::audit,
        approvals::list,
        approvals::show,
        approvals::decide_one,
        approvals::decide_many,
        guards::suppressions,
        guards::suppress,
        guards::safe_modes,
        guards::set_safe_mode,
        keys::show,
        keys::rotate,
        clock::show,
        clock::accept,
        contacts::list,
        contacts::show,
        contacts::merge,
        contacts::split,
        contacts::trace
    )
)]
struct Document;

/// OpenAPI description of the admin API.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
