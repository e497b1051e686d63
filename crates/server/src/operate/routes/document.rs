//! OpenAPI description of the admin API.

use serde_json::{Value, json};
use utoipa::OpenApi;

use super::{
    access, accounts, alerts, approvals, change, clock, contacts, dead_letters, endpoints, event_edits, events,
    exports, failure_groups, guards, history, imports, jobs, keys, node, pauses, replays, shadow, shapes, stream,
    trials,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluice admin API",
        description = "Queries and commands of operators. Times are RFC 3339; errors are application/problem+json with a stable code. Lists are also available as text/csv and application/x-ndjson (Accept); the header sluice-next then has the cursor. A command with an Idempotency-Key is done once: a repeated request gets the first response for 24 hours, and another request with the key 422. A response with a secret is not kept (409 on a repeat), and the key of a request that reveals personal data is ignored."
    ),
    paths(
        node::status,
        events::events,
        events::event,
        events::reveal,
        event_edits::list,
        event_edits::edit,
        jobs::jobs,
        jobs::job,
        jobs::resolve,
        dead_letters::dead_letters,
        dead_letters::dead_reasons,
        dead_letters::drop_jobs,
        failure_groups::list,
        failure_groups::show,
        failure_groups::acknowledge,
        failure_groups::resolve,
        failure_groups::reopen,
        replays::start,
        replays::list,
        replays::show,
        replays::pause,
        replays::resume,
        replays::cancel,
        endpoints::sources,
        endpoints::source,
        shapes::show,
        shapes::accept,
        endpoints::destinations,
        endpoints::workers,
        accounts::flows,
        accounts::queues,
        accounts::balance,
        stream::stream,
        alerts::list,
        alerts::rules,
        alerts::responses,
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
        change::pending_plan,
        change::plan_route,
        change::apply_route,
        shadow::show,
        shadow::start,
        shadow::stop,
        trials::start,
        trials::show,
        trials::cancel,
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
        contacts::trace,
        exports::events,
        exports::revealed_events,
        exports::dead_letters,
        exports::revealed_dead_letters,
        exports::contacts,
        exports::revealed_contacts,
        imports::start,
        imports::check,
        imports::rows,
        imports::list,
        imports::show,
        imports::cancel
    )
)]
struct Document;

/// Statuses of problems that any request can have: of its caller, its parameters, the state of the node.
const PROBLEMS: [&str; 8] = ["400", "401", "403", "404", "406", "409", "429", "503"];
/// The same for requests with a body.
const BODY_PROBLEMS: [&str; 4] = ["408", "413", "415", "422"];

/// OpenAPI description of the admin API.
pub fn openapi() -> String {
    let mut document = match serde_json::to_value(Document::openapi()) {
        Ok(document) => document,
        Err(error) => return format!("{{\"error\":\"{error}\"}}"),
    };
    document["security"] = json!([{ "token": [] }]);
    document["components"]["securitySchemes"]["token"] = json!({ "type": "http", "scheme": "bearer" });
    document["components"]["schemas"]["Problem"] = problem_schema();
    merge_parts(&mut document["components"]["schemas"]);
    let operations = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for path in operations.filter_map(Value::as_object_mut) {
        for (method, operation) in path.iter_mut() {
            describe(method, operation);
        }
    }
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

/// A schema that consists of parts allows the members of all of them: a part that allows no others would refuse those of the rest.
fn merge_parts(schemas: &mut Value) {
    let known = schemas.clone();
    let schemas = schemas.as_object_mut().into_iter().flat_map(|schemas| schemas.values_mut());
    for schema in schemas.filter_map(Value::as_object_mut) {
        let Some(parts) = schema.get_mut("allOf").and_then(Value::as_array_mut) else { continue };
        let mut is_closed = false;
        for part in parts {
            let name = part["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"));
            if let Some(whole) = name.and_then(|name| known.get(name)) {
                *part = whole.clone();
            }
            let removed = part.as_object_mut().and_then(|part| part.remove("additionalProperties"));
            is_closed |= removed == Some(Value::Bool(false));
        }
        if is_closed {
            schema.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
        }
    }
}

/// Adds what every operation has: problems, and the idempotency key of a command.
fn describe(method: &str, operation: &mut Value) {
    let is_command = method == "post";
    if is_command {
        let key = json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "The command is done once: a repeated request gets the first response.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" }
        });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(key),
            None => operation["parameters"] = json!([key]),
        }
    }
    let more: &[&str] = if is_command { &BODY_PROBLEMS } else { &[] };
    let responses = &mut operation["responses"];
    for status in PROBLEMS.iter().chain(more) {
        let known = responses[*status]["description"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        responses[*status] = json!({
            "description": known.unwrap_or_else(|| "Problem".to_owned()),
            "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } }
        });
    }
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": { "type": "string", "description": "`urn:sluice:problem:` and the code." },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "code": { "type": "string", "description": "Stable." },
            "detail": { "type": "string", "description": "What is wrong, and what to do." }
        }
    })
}
