//! OpenAPI description of the admin API.

use utoipa::OpenApi;

use super::{
    access, alerts, approvals, change, clock, contacts, dead_letters, endpoints, events, guards, history, jobs, keys,
    node, pauses, replays, stream,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluice admin API",
        description = "Queries and commands of operators. Times are RFC 3339; errors are application/problem+json with a stable code. Lists are also available as text/csv and application/x-ndjson (Accept); the header sluice-next then has the cursor. A command with an Idempotency-Key is done once: a repeated request gets the first response, until the node restarts."
    ),
    paths(
        node::status,
        events::events,
        events::event,
        events::reveal,
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
        endpoints::workers,
        stream::stream,
        alerts::list,
        alerts::acknowledge,
        alerts::snooze,
        alerts::test,
        history::series,
        history::totals,
        history::latency,
        history::north_stars,
        endpoints::destination,
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
        access::whoami,
        access::users,
        access::put_user,
        access::remove_user,
        access::tokens,
        access::add_token,
        access::revoke_token,
        access::sessions,
        access::revoke_session,
        access::add_link,
        contacts::list,
        contacts::show,
        contacts::merge,
        contacts::split,
        contacts::identify,
        contacts::trace
    )
)]
struct Document;

/// OpenAPI description of the admin API.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
