//! Plan, apply and reload the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::config::Revision;
use sluice_ledger::{AuditEntry, NewRevision, Page};
use utoipa::ToSchema;

use crate::change::install::{self, InstallError, Manifest};
use crate::change::{LedgerUsage, Plan, PlanHash, Side, plan, reached};
use crate::config::{self, Colours, Files};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::change::{REVISIONS_MAX, find_revision};
use crate::operate::views::{AppliedView, PendingPlanView};
use crate::revisions::LoadedRevision;
use crate::run::{self, StartError};

/// Configuration to activate: files, or a stored revision.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// Texts by path within the configuration directory. Secrets are never sent.
    pub files: Option<BTreeMap<String, String>>,
    /// Hash of a revision or a unique prefix; `previous` is the one before the active revision.
    pub revision: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApplyRequest {
    #[serde(flatten)]
    pub wanted: Wanted,
    /// Id of the reviewed plan.
    pub plan: String,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
    /// Apply even if jobs need removed resources.
    pub allow_stranded: bool,
    /// Overwrite edits in the node's directory that were never active.
    pub discard_edits: bool,
}

impl From<InstallError> for OperateError {
    fn from(error: InstallError) -> OperateError {
        match error {
            InstallError::Path { .. } => OperateError::Invalid(error.to_string()),
            InstallError::SingleFile { .. } => OperateError::Refused("single-file", error.to_string()),
            InstallError::Io { .. } => OperateError::Refused(
                "directory-not-writable",
                format!(
                    "{error}\nThe node writes the files to its configuration directory. If it cannot write there, change the files at their origin and run `sluice reload`."
                ),
            ),
        }
    }
}

pub(super) struct Candidate {
    pub(super) files: Files,
    pub(super) live: LoadedRevision,
    warnings: Vec<String>,
}

impl Operator {
    pub async fn plan(&self, wanted: &Wanted) -> Result<Plan, OperateError> {
        let candidate = self.candidate(wanted).await?;
        let running = self.running().await?;
        self.plan_of(&running, &candidate).await
    }

    /// The plan of the files in the configuration directory of the node, if they are not active: edits that were not reloaded, or that a
    /// reload refused.
    pub async fn pending_plan(&self) -> Result<PendingPlanView, OperateError> {
        let running = self.running().await?;
        let none = PendingPlanView { pending: false, plan: None, problem: None };
        let files = match config::read(&self.settings.config) {
            Ok(files) => files,
            Err(error) => return Ok(PendingPlanView { pending: true, problem: Some(error.to_string()), ..none }),
        };
        if files.iter().eq(running.iter()) {
            return Ok(none);
        }
        let files = files.within(self.revisions.current().config.directory.clone());
        match self.compiled(files) {
            Ok(candidate) => {
                let plan = Some(self.plan_of(&running, &candidate).await?);
                Ok(PendingPlanView { pending: true, plan, problem: None })
            }
            Err(error) => Ok(PendingPlanView { pending: true, problem: Some(error.to_string()), ..none }),
        }
    }

    /// Activates a configuration if the reviewed plan is still current.
    pub async fn apply(&self, order: &ApplyRequest) -> Result<AppliedView, OperateError> {
        self.permit(Permission::Administer)?;
        if order.reason.trim().is_empty() {
            return Err(OperateError::Invalid("a change needs a reason".into()));
        }
        let agreed = PlanHash::parse(&order.plan).ok_or_else(|| {
            OperateError::Invalid(format!("`{}` is not a plan id; `sluice plan` prints one", order.plan))
        })?;
        let actor = &self.actor(&order.actor);
        let _one_at_a_time = self.changing.lock().await;
        let candidate = self.candidate(&order.wanted).await?;
        let running = self.running().await?;
        let plan = self.plan_of(&running, &candidate).await?;
        still_holds(&agreed, &plan)?;
        let stranding = if order.allow_stranded { Stranding::Allowed } else { Stranding::Refused };
        refuse_stranding(&plan, stranding)?;
        let there = self.directory(&running, &candidate.files, order.discard_edits)?;
        let revision = plan.new.clone();
        let manifest = Manifest::new(&revision, actor, order.reason.trim());
        if Revision::of(there.iter()).0 != revision {
            install::put(&self.settings.config, &there, &candidate.files, manifest)?;
        }
        let Candidate { files, live, .. } = candidate;
        let hash = live.revision.clone();
        self.prepare(live);
        let kept = self.keep(&files, &hash, actor, order.reason.trim()).await;
        if let Err(error) = kept {
            // A revision that is not recorded must not be active: restores the files.
            let back = Manifest::new(&plan.running, actor, "rolled back: not recorded");
            install::put(&self.settings.config, &files, &there, back)?;
            install::clear(&self.settings.config)?;
            return Err(error);
        }
        self.catch_up().await?;
        install::clear(&self.settings.config)?;
        Ok(AppliedView { revision, changed: !plan.is_empty(), plan })
    }

    /// Records the active revision.
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
            at: self.clock.ledger_time(),
        };
        Ok(self.ledger.activate_revision(kept).await?)
    }

    pub(super) async fn candidate(&self, wanted: &Wanted) -> Result<Candidate, OperateError> {
        let files = match (&wanted.files, &wanted.revision) {
            (Some(files), None) => {
                for path in files.keys() {
                    install::check_path(path)?;
                }
                Files::from_texts(files.iter().map(|(path, text)| (path.as_str(), text.as_str()))).skip_foreign()
            }
            (None, Some(name)) => {
                let history = self.ledger.revision_history(Page { after: None, limit: REVISIONS_MAX }).await?;
                self.files_of(&find_revision(&history, name)?).await?
            }
            _ => return Err(OperateError::Invalid("set either files or revision".into())),
        };
        self.compiled(files.within(self.revisions.current().config.directory.clone()))
    }

    fn compiled(&self, files: Files) -> Result<Candidate, OperateError> {
        let ready = run::ready(&files, &**self.revisions.secrets());
        let (live, problems) = ready.map_err(|error| OperateError::Config(explained(error)))?;
        let warnings = problems.iter().map(|problem| format!("{}: {}", problem.place(), problem.message)).collect();
        Ok(Candidate { files, live, warnings })
    }

    pub(super) async fn plan_of(&self, running: &Files, candidate: &Candidate) -> Result<Plan, OperateError> {
        let pinned = self.ledger.pinned().await?;
        let revisions: BTreeSet<&str> = pinned.iter().map(|record| record.revision.as_str()).collect();
        let mut subject = LedgerUsage::default();
        let mut warnings = candidate.warnings.clone();
        for revision in revisions {
            match self.revisions.get(&Arc::from(revision), &self.ledger).await {
                Some(live) => subject.reached.extend(reached(&live.config)),
                None => warnings.push(format!(
                    "revision {revision} of existing jobs no longer compiles (a missing secret?); its jobs die with the code revision-lost"
                )),
            }
        }
        let week = std::time::Duration::from_secs(6 * 86_400);
        let since = (self.clock.ledger_time() - week).to_jiff().strftime("%Y-%m-%d").to_string();
        for tally in self.ledger.source_day_counts(since).await? {
            *subject.accepted.entry(tally.source).or_default() += tally.accepted;
        }
        subject.pinned = pinned;
        let before = self.revisions.get(&Arc::from(Revision::of(running.iter()).0), &self.ledger).await;
        let side = Side { files: running, config: before.as_ref().map(|live| &*live.config) };
        let plan = plan(side, (&candidate.files, &candidate.live.config), &subject);
        Ok(Plan { warnings, ..plan })
    }

    /// Files in the directory, if they may be replaced: those of the active or the new revision.
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
                "the node's directory has edits that were never active: {}\nActivate them with `sluice reload`, or overwrite them with --discard-edits.",
                edited.join(", ")
            ),
        ))
    }

    /// Reloads the configuration and its secrets; with errors, or if jobs would be stranded, the active ones stay. Returns
    /// the active revision and whether anything changed.
    pub async fn reload(
        &self,
        actor: &str,
        reason: &str,
        stranding: Stranding,
    ) -> Result<(String, bool), OperateError> {
        self.reload_if((actor, reason), stranding, |_| true).await
    }

    /// The same, if the files are still the revision that was reviewed.
    pub async fn reload_reviewed(&self, actor: &str, reason: &str, reviewed: &str) -> Result<String, OperateError> {
        let is_reviewed = |revision: &str| revision == reviewed;
        Ok(self.reload_if((actor, reason), Stranding::Refused, is_reviewed).await?.0)
    }

    async fn reload_if(
        &self,
        (actor, reason): (&str, &str),
        stranding: Stranding,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(String, bool), OperateError> {
        self.permit(Permission::Administer)?;
        let actor = &self.actor(actor);
        let _one_at_a_time = self.changing.lock().await;
        let loaded = run::load(&self.settings).map_err(|error| OperateError::Config(explained(error)));
        let run::LoadedConfig { live, files, warnings, .. } = loaded?;
        let revision = live.revision.clone();
        if !is_wanted(&revision) {
            let detail =
                format!("the files are revision {revision} by now, not the one that was shown; look at the plan again");
            return Err(OperateError::Refused("plan-outdated", detail));
        }
        let before = self.revisions.current();
        if live.is_same(&before) {
            return Ok((revision.to_string(), false));
        }
        let candidate = Candidate { files, live, warnings: vec![] };
        if revision != before.revision {
            let running = self.running().await?;
            refuse_stranding(&self.plan_of(&running, &candidate).await?, stranding)?;
        }
        run::warn_of(&warnings);
        if revision == before.revision {
            let entry = AuditEntry {
                at: self.clock.ledger_time(),
                actor: actor.to_owned(),
                action: "secrets".to_owned(),
                object: revision.to_string(),
                detail: "a secret has changed".to_owned(),
            };
            self.ledger.audit(entry).await?;
        }
        let reason = if reason.trim().is_empty() { "reload" } else { reason.trim() };
        self.prepare(candidate.live);
        self.keep(&candidate.files, &revision, actor, reason).await?;
        self.catch_up().await?;
        Ok((revision.to_string(), true))
    }
}

/// Whether a change may remove resources that jobs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranding {
    Refused,
    Allowed,
}

fn refuse_stranding(plan: &Plan, stranding: Stranding) -> Result<(), OperateError> {
    if plan.stranded.is_empty() || stranding == Stranding::Allowed {
        return Ok(());
    }
    let describe = |thing: &crate::change::Stranded| {
        format!("{} {}: {} live jobs, {} dead letters", thing.kind, thing.name, thing.live, thing.dead_letters)
    };
    let gone: Vec<String> = plan.stranded.iter().map(describe).collect();
    Err(OperateError::Refused(
        "would-strand",
        format!(
            "jobs need removed resources:\n  {}\nKeep these until the jobs are done, or use --allow-stranded (of `sluice reload` and `sluice apply`).",
            gone.join("\n  ")
        ),
    ))
}

fn still_holds(agreed: &PlanHash, plan: &Plan) -> Result<(), OperateError> {
    if agreed.to_string() == plan.plan {
        return Ok(());
    }
    let what = if !plan.running.starts_with(&agreed.running) {
        format!("the active revision is {}, but the plan was made for {}…", plan.running, agreed.running)
    } else if !plan.new.starts_with(&agreed.new) {
        format!("the files are revision {}, but the plan was made for {}…", plan.new, agreed.new)
    } else {
        "its changes or stranded jobs differ now".to_owned()
    };
    Err(OperateError::Refused(
        "plan-outdated",
        format!("the plan {agreed} is outdated: {what}\nCreate a new one with `sluice plan`."),
    ))
}

fn explained(error: StartError) -> String {
    match error {
        StartError::Config(compiled, files) => config::render_all(&compiled.problems, &files, Colours::None),
        other => other.to_string(),
    }
}
