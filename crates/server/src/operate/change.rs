//! Changes of the configuration: planned first, then applied, and every revision kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use sluice_domain::config::Revision;
use sluice_ledger::{NewRevision, Page, RevisionRecord};
use utoipa::{IntoParams, ToSchema};

use super::api::{ApiResult, JsonBody, QueryParams};
use super::operator::{OperateError, Operator};
use super::view::List;
use crate::change::install::{self, InstallError, Manifest};
use crate::change::{LedgerUsage, Plan, PlanHash, Side, plan, reached};
use crate::config::{self, Colours, Files};
use crate::revisions::LoadedRevision;
use crate::run::{self, StartError};

/// How large an order with files may be, in bytes of JSON.
pub(super) const ORDER_BYTES_MAX: usize = 16 * 1024 * 1024;
const LIMIT: u32 = 50;
const LIMIT_MAX: u32 = 500;

/// What is to be put in force: these files, or those of a revision that was kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// The text of each file by its path within the configuration directory. Secrets are never sent.
    pub files: Option<BTreeMap<String, String>>,
    /// Or the name of a revision, or enough of its beginning; `previous` is the one before the one in force.
    pub revision: Option<String>,
}

/// A change, as it is ordered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ApplyRequest {
    /// What is to be put in force.
    #[serde(flatten)]
    pub wanted: Wanted,
    /// The plan that was read and agreed to.
    pub plan: String,
    /// Why; stands in the audit trail.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// Go on although jobs still need what would be gone.
    pub allow_stranded: bool,
    /// Write over edits in the node's directory that were never in force.
    pub discard_edits: bool,
}

/// What came of a change.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppliedView {
    /// The revision in force.
    pub revision: String,
    /// Whether it is another than before.
    pub changed: bool,
    /// What changed.
    pub plan: Plan,
}

/// A revision that was in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// Its place among all changes.
    pub n: i64,
    /// Its name.
    pub revision: String,
    /// Since when it was in force.
    pub at: String,
    /// Who brought it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Whether it is in force now.
    pub current: bool,
}

/// A revision with its files.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionDetail {
    /// Its name.
    pub revision: String,
    /// Whether it is in force now.
    pub current: bool,
    /// Each time that it came into force, newest first.
    pub in_force: Vec<RevisionView>,
    /// Its files.
    pub files: BTreeMap<String, String>,
}

impl From<InstallError> for OperateError {
    fn from(error: InstallError) -> OperateError {
        match error {
            InstallError::Path { .. } => OperateError::Invalid(error.to_string()),
            InstallError::SingleFile { .. } => OperateError::Refused("single-file", error.to_string()),
            InstallError::Io { .. } => OperateError::Refused(
                "directory-not-writable",
                format!(
                    "{error}\nThe node writes the files into its own configuration directory. If that is not its to write, change them where they come from and `sluice reload`."
                ),
            ),
        }
    }
}

/// A configuration that may be put in force.
struct Candidate {
    files: Files,
    live: LoadedRevision,
    warnings: Vec<String>,
}

impl Operator {
    /// What would change.
    pub async fn plan(&self, wanted: &Wanted) -> Result<Plan, OperateError> {
        let candidate = self.candidate(wanted).await?;
        let running = self.running().await?;
        self.plan_of(&running, &candidate).await
    }

    /// Puts a configuration in force, if the plan that was agreed to is still what would happen.
    pub async fn apply(&self, order: &ApplyRequest) -> Result<AppliedView, OperateError> {
        if order.reason.trim().is_empty() {
            return Err(OperateError::Invalid("a change needs a reason".into()));
        }
        let agreed = PlanHash::parse(&order.plan).ok_or_else(|| {
            OperateError::Invalid(format!("`{}` is not the hash of a plan; `sluice plan` prints one", order.plan))
        })?;
        let actor = if order.actor.trim().is_empty() { "unknown" } else { order.actor.trim() };
        let _one_at_a_time = self.changing.lock().await;
        let candidate = self.candidate(&order.wanted).await?;
        let running = self.running().await?;
        let plan = self.plan_of(&running, &candidate).await?;
        still_holds(&agreed, &plan)?;
        if !plan.stranded.is_empty() && !order.allow_stranded {
            let gone: Vec<String> = plan
                .stranded
                .iter()
                .map(|thing| {
                    format!(
                        "{} {}: {} live jobs, {} dead letters",
                        thing.kind, thing.name, thing.live, thing.dead_letters
                    )
                })
                .collect();
            return Err(OperateError::Refused(
                "would-strand",
                format!(
                    "jobs still need what would be gone:\n  {}\nKeep it until they are done, or allow it.",
                    gone.join("\n  ")
                ),
            ));
        }
        let there = self.directory(&running, &candidate.files, order.discard_edits)?;
        let revision = plan.new.clone();
        let manifest = Manifest::new(&revision, actor, order.reason.trim());
        if Revision::of(there.iter()).0 != revision {
            install::put(&self.settings.config, &there, &candidate.files, manifest)?;
        }
        let kept = self.keep(&candidate.files, &candidate.live.revision, actor, order.reason.trim()).await;
        if let Err(error) = kept {
            // Nothing is in force that is not written down: the files go back to what they were.
            let back = Manifest::new(&plan.running, actor, "taken back");
            install::put(&self.settings.config, &candidate.files, &there, back)?;
            install::clear(&self.settings.config)?;
            return Err(error);
        }
        self.put_in_force(candidate.live).await?;
        install::clear(&self.settings.config)?;
        Ok(AppliedView { revision, changed: !plan.is_empty(), plan })
    }

    /// Every revision that was in force, newest first.
    pub async fn configured(&self, after: Option<i64>, limit: u32) -> Result<List<RevisionView>, OperateError> {
        let limit = limit.clamp(1, LIMIT_MAX);
        let current = self.ledger.configured(Page { after: None, limit: 1 }).await?.first().map(|newest| newest.n);
        let mut records = self.ledger.configured(Page { after, limit: limit + 1 }).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = records.last().filter(|_| more).map(|last| last.n.to_string());
        Ok(List { items: records.into_iter().map(|record| told(record, current)).collect(), next })
    }

    /// One revision with its files.
    pub async fn revision(&self, name: &str) -> Result<RevisionDetail, OperateError> {
        let history = self.ledger.configured(Page { after: None, limit: LIMIT_MAX }).await?;
        let revision = find(&history, name)?;
        let current = history.first().map(|newest| newest.n);
        let files = self.files_of(&revision).await?;
        let is_current = history.first().is_some_and(|newest| newest.hash == revision);
        let in_force = history.into_iter().filter(|record| record.hash == revision).map(|record| told(record, current));
        Ok(RevisionDetail {
            current: is_current,
            in_force: in_force.collect(),
            files: files.iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect(),
            revision,
        })
    }

    /// Writes down that a revision is in force.
    pub(super) async fn keep(
        &self,
        files: &Files,
        revision: &Arc<str>,
        actor: &str,
        reason: &str,
    ) -> Result<(), OperateError> {
        let kept = NewRevision {
            hash: revision.clone(),
            files: files.to_json(),
            actor: actor.to_owned(),
            reason: reason.to_owned(),
            at: self.clock.wall(),
        };
        Ok(self.ledger.keep_revision(kept).await?)
    }

    /// The rooms take it from here.
    pub(super) async fn put_in_force(&self, live: LoadedRevision) -> Result<(), OperateError> {
        let revision = live.revision.clone();
        if !live.is_same(&self.revisions.current()) {
            self.revisions.replace(live);
            self.scheduler.reconfigured();
            // A worker may have come into a queue that is paused.
            let _one_at_a_time = self.pausing.lock().await;
            self.put_workers_in_force(&self.ledger.pauses().await?);
            tracing::info!(%revision, "a new configuration is in force");
        }
        Ok(())
    }

    async fn candidate(&self, wanted: &Wanted) -> Result<Candidate, OperateError> {
        let files = match (&wanted.files, &wanted.revision) {
            (Some(files), None) => {
                for path in files.keys() {
                    install::check_path(path)?;
                }
                Files::from_texts(files.iter().map(|(path, text)| (path.as_str(), text.as_str())))
            }
            (None, Some(name)) => {
                let history = self.ledger.configured(Page { after: None, limit: LIMIT_MAX }).await?;
                self.files_of(&find(&history, name)?).await?
            }
            _ => return Err(OperateError::Invalid("give files, or the name of a revision; one of the two".into())),
        };
        let files = files.within(self.revisions.current().config.directory.clone());
        let ready = run::ready(&files, &**self.revisions.secrets());
        let (live, problems) = ready.map_err(|error| OperateError::Config(explained(error)))?;
        let warnings = problems.iter().map(|problem| format!("{}: {}", problem.place(), problem.message)).collect();
        Ok(Candidate { files, live, warnings })
    }

    /// The files of the revision in force; none when nothing was ever in force.
    async fn running(&self) -> Result<Files, OperateError> {
        match self.ledger.configured(Page { after: None, limit: 1 }).await?.first() {
            Some(newest) => self.files_of(&newest.hash).await,
            None => Ok(Files::default()),
        }
    }

    async fn files_of(&self, revision: &str) -> Result<Files, OperateError> {
        let kept = self.ledger.revision(Arc::from(revision)).await?;
        kept.and_then(|kept| Files::from_json(&kept))
            .ok_or_else(|| OperateError::NotFound(format!("the files of revision {revision} are not kept")))
    }

    async fn plan_of(&self, running: &Files, candidate: &Candidate) -> Result<Plan, OperateError> {
        let pinned = self.ledger.pinned().await?;
        let revisions: BTreeSet<&str> = pinned.iter().map(|record| record.revision.as_str()).collect();
        let mut subject = LedgerUsage::default();
        let mut warnings = candidate.warnings.clone();
        for revision in revisions {
            match self.revisions.get(&Arc::from(revision), &self.ledger).await {
                Some(live) => subject.reached.extend(reached(&live.config)),
                None => warnings.push(format!(
                    "jobs were accepted under revision {revision}, which cannot be read any more (is a secret gone?); they die as revision-lost"
                )),
            }
        }
        let week = std::time::Duration::from_secs(6 * 86_400);
        let since = (self.clock.wall() - week).to_jiff().strftime("%Y-%m-%d").to_string();
        for tally in self.ledger.tallies(since).await? {
            *subject.accepted.entry(tally.source).or_default() += tally.accepted;
        }
        subject.pinned = pinned;
        let before = self.revisions.get(&Arc::from(Revision::of(running.iter()).0), &self.ledger).await;
        let side = Side { files: running, config: before.as_ref().map(|live| &*live.config) };
        let plan = plan(side, (&candidate.files, &candidate.live.config), &subject);
        Ok(Plan { warnings, ..plan })
    }

    /// What lies in the directory, if it may be replaced: what is in force, or what is to be put in force.
    fn directory(&self, running: &Files, new: &Files, discard_edits: bool) -> Result<Files, OperateError> {
        let there = config::read(&self.settings.config).map_err(|error| OperateError::Config(error.to_string()))?;
        let is = |files: &Files| there.iter().eq(files.iter());
        if discard_edits || is(running) || is(new) {
            return Ok(there);
        }
        let all: BTreeSet<&str> = there.iter().chain(running.iter()).map(|(path, _)| path).collect();
        let edited: Vec<&str> = all.into_iter().filter(|path| there.text(path) != running.text(path)).collect();
        Err(OperateError::Refused(
            "directory-edited",
            format!(
                "the node's directory has edits that were never in force: {}\nPut them in force with `sluice reload`, or write over them with --discard-edits.",
                edited.join(", ")
            ),
        ))
    }
}

fn still_holds(agreed: &PlanHash, plan: &Plan) -> Result<(), OperateError> {
    if agreed.to_string() == plan.plan {
        return Ok(());
    }
    let what = if !plan.running.starts_with(&agreed.running) {
        format!("revision {} is in force now, and the plan was made when {}… was", plan.running, agreed.running)
    } else if !plan.new.starts_with(&agreed.new) {
        format!("the files are revision {} now, and the plan was made for {}…", plan.new, agreed.new)
    } else {
        "what it would strand or change is not the same any more".to_owned()
    };
    Err(OperateError::Refused(
        "plan-outdated",
        format!("the plan {agreed} holds no more: {what}\nMake a new one with `sluice plan`."),
    ))
}

fn explained(error: StartError) -> String {
    match error {
        StartError::Config(compiled, files) => config::render_all(&compiled.problems, &files, Colours::None),
        other => other.to_string(),
    }
}

fn told(record: RevisionRecord, current: Option<i64>) -> RevisionView {
    RevisionView {
        current: Some(record.n) == current,
        n: record.n,
        revision: record.hash,
        at: record.at.to_string(),
        actor: record.actor,
        reason: record.reason,
    }
}

/// The revision that a name means: whole, or its beginning, or `previous`.
fn find(history: &[RevisionRecord], name: &str) -> Result<String, OperateError> {
    if name == "previous" {
        let current = history.first().map(|newest| newest.hash.as_str());
        let before = history.iter().find(|record| Some(record.hash.as_str()) != current);
        return before
            .map(|record| record.hash.clone())
            .ok_or_else(|| OperateError::NotFound("there is no revision before the one in force".into()));
    }
    let matching: BTreeSet<&str> = history
        .iter()
        .map(|record| record.hash.as_str())
        .filter(|hash| name.len() >= 4 && hash.starts_with(&name.to_ascii_lowercase()))
        .collect();
    match matching.iter().collect::<Vec<_>>()[..] {
        [one] => Ok((*one).to_owned()),
        [] => Err(OperateError::NotFound(format!("there is no revision `{name}`; `sluice revisions` lists them"))),
        _ => Err(OperateError::Invalid(format!("several revisions begin with `{name}`; write more of it"))),
    }
}

/// What a new configuration would change: these files, or an earlier revision.
#[utoipa::path(post, path = "/api/v1/plan", request_body = Wanted, responses((status = 200, body = Plan), (status = 422)))]
pub(super) async fn plan_route(
    State(operator): State<Operator>,
    JsonBody(wanted): JsonBody<Wanted>,
) -> ApiResult<Plan> {
    Ok(Json(operator.plan(&wanted).await?))
}

/// Put a configuration in force, if the plan still holds.
#[utoipa::path(post, path = "/api/v1/apply", request_body = ApplyRequest, responses((status = 200, body = AppliedView), (status = 409), (status = 422)))]
pub(super) async fn apply_route(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<ApplyRequest>,
) -> ApiResult<AppliedView> {
    Ok(Json(operator.apply(&order).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionsQuery {
    /// Go on after this line.
    after: Option<i64>,
    /// At most so many.
    limit: Option<u32>,
}

/// Every revision that was in force, newest first.
#[utoipa::path(get, path = "/api/v1/revisions", params(RevisionsQuery), responses((status = 200, body = List<RevisionView>)))]
pub(super) async fn revisions(
    State(operator): State<Operator>,
    QueryParams(query): QueryParams<RevisionsQuery>,
) -> ApiResult<List<RevisionView>> {
    Ok(Json(operator.configured(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One revision with its files.
#[utoipa::path(get, path = "/api/v1/revisions/{revision}", params(("revision" = String, Path)), responses((status = 200, body = RevisionDetail), (status = 404)))]
pub(super) async fn revision(State(operator): State<Operator>, Path(name): Path<String>) -> ApiResult<RevisionDetail> {
    Ok(Json(operator.revision(&name).await?))
}
