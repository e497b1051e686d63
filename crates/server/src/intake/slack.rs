//! Button presses in Slack: decisions of approvals.
//!
//! Slack signs every press with the signing secret of the app, which the destination has. The decision is written like
//! any other, so a second press has no effect.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use sluice_domain::approval::{ApprovalId, Choice};
use sluice_domain::destination::DestinationKind;
use sluice_domain::flow::DuplicateKeys;
use sluice_domain::payload;
use sluice_domain::time::Time;
use sluice_domain::verify::{self, Scheme, Secret, SecretValue, Verifier};
use sluice_ledger::{DecideApproval, Decided};

use super::IntakeContext;
use super::answer::{HttpProblem, json_response};
use super::prepare::Headers;
use super::problems::{ledger_problem, no_flow, not_received};
use super::receive::Receiver;
use crate::revisions::LoadedRevision;

/// Path prefix before the destination name.
const PATH: &str = "/slack/interactions/";
/// A press includes its whole message.
const BODY_BYTES_MAX: usize = 512 * 1024;
/// Block id of the approval buttons.
const BLOCK: &str = "sluice-approval";

/// Destination of a button press; `None` for other requests.
pub(super) fn destination_of<'p>(method: &Method, path: &'p str) -> Option<&'p str> {
    path.strip_prefix(PATH).filter(|name| method == Method::POST && !name.is_empty())
}

pub(super) async fn take(
    context: &IntakeContext,
    live: &LoadedRevision,
    destination: &str,
    request: Request<Incoming>,
    receiver: Receiver<'_>,
) -> Result<Response<Full<Bytes>>, HttpProblem> {
    let kind = live.config.destinations.get(destination).map(|destination| &destination.kind);
    let Some(DestinationKind::Slack(slack)) = kind else {
        return Err(no_flow(live, request.method(), request.uri().path()));
    };
    let Some(secret) = &slack.signing_secret else {
        return Err(no_flow(live, request.method(), request.uri().path()));
    };
    let (head, body) = request.into_parts();
    let received = receiver.receive(body, BODY_BYTES_MAX).await;
    let body = &received.map_err(|error| not_received(error, BODY_BYTES_MAX as u64))?.bytes;
    let now = context.clock.wall();
    verify_signature(secret, &head, body, now)?;
    let pressed = read(body).ok_or_else(|| invalid("not a button press of an approval"))?;
    let mut results = vec![];
    for (id, choice) in pressed.choices {
        let decide = DecideApproval {
            ids: vec![id],
            choice,
            actor: pressed.actor.clone(),
            reason: "pressed the button in Slack".to_owned(),
            at: context.clock.ledger_time(),
        };
        let decided = context.ledger.decide_approval(decide).await.map_err(|error| ledger_problem(&error))?;
        for (id, decided) in decided {
            let word = match decided {
                Decided::Counts(job, worker) => {
                    context.wake(vec![(job, worker)]);
                    choice.state().as_str().to_owned()
                }
                Decided::Same => choice.state().as_str().to_owned(),
                Decided::Conflict(record) => {
                    let by = record.decided_by.as_deref().unwrap_or("unknown");
                    format!("already {} by {by}", record.state.as_str())
                }
                Decided::Unknown => "unknown".to_owned(),
            };
            results.push(json!({ "approval": id.to_string(), "state": word }));
        }
    }
    Ok(json_response(StatusCode::OK, &json!({ "decided": results }), "application/json"))
}

fn invalid(detail: &str) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "interaction-invalid", detail)
}

struct Pressed {
    actor: String,
    choices: Vec<(ApprovalId, Choice)>,
}

fn read(body: &[u8]) -> Option<Pressed> {
    let payload = payload::parse_form(body, DuplicateKeys::Last).ok()?;
    let user = &payload["user"];
    let name = user["username"].as_str().or(user["name"].as_str()).or(user["id"].as_str()).unwrap_or("unknown");
    let ours = |action: &&Value| action["block_id"].as_str() == Some(BLOCK);
    let choices = payload["actions"].as_array()?.iter().filter(ours).filter_map(|action| {
        let choice = Choice::parse(action["action_id"].as_str()?)?;
        Some((ApprovalId::parse(action["value"].as_str()?)?, choice))
    });
    let choices: Vec<_> = choices.collect();
    (!choices.is_empty()).then(|| Pressed { actor: format!("slack:{name}"), choices })
}

/// Verifies the Slack signature.
fn verify_signature(secret: &SecretValue, head: &Parts, body: &[u8], now: Time) -> Result<(), HttpProblem> {
    let settings = verify::VerifierSettings::new(Scheme::Slack, vec![Secret::new("signing_secret", secret.clone())]);
    let verifier = Verifier::new(settings).map_err(|problem| invalid(&problem.to_string()))?;
    let headers = Headers(&head.headers);
    let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let raw = verify::Request { method: head.method.as_str(), path_and_query, headers: &headers, body };
    verify::verify(&verifier, &raw, now.to_jiff())
        .map(drop)
        .map_err(|refusal| HttpProblem::new(StatusCode::UNAUTHORIZED, refusal.code(), refusal.to_string()))
}
