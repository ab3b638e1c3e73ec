//! Changes the URL of a master: the old server loses its vote before the new one may vote.
//!
//! The status records the URL in use, so that a restarted operator begins with the old URL, too. One master changes at
//! a time.

use std::{collections::BTreeMap, time::Duration};

use super::{Effect, Index, MastersRequest, Planted, QuorumChange, World};
use crate::{
    api::{STOPPED, plan::QuorumPlan},
    controller::{
        problem::{Problem, Reason},
        secrets::Found,
    },
    lease::BootInstant,
    masters::{OldServer, RetireOutcome},
    operator::quorum::check,
};

/// Interval between attempts to reach a server.
const AGAIN: Duration = Duration::from_secs(1);

/// A change of a URL under way.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct UrlChange {
    asking: bool,
    again_at: Option<BootInstant>,
    /// The problem found by the last attempt.
    problem: Option<Problem>,
}

/// The old and the new URL of a master. The server behind the old URL has to give up its vote first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controller) struct RetiredUrl {
    pub(in crate::controller) quorum: String,
    pub(in crate::controller) master: String,
    pub(in crate::controller) old: String,
    pub(in crate::controller) new: String,
}

impl UrlChange {
    /// Reports whether the next attempt is due.
    pub(super) fn is_due(&self, now: BootInstant) -> bool {
        !self.asking && self.again_at.is_some_and(|at| at <= now)
    }
}

impl Index {
    /// Returns the plan with the URLs in use: those of the running masters, or else those recorded in the status.
    pub(super) fn with_urls_in_use(&self, name: &str, plan: &QuorumPlan) -> QuorumPlan {
        let mut plan = plan.clone();
        let running = self.open.get(name).map(|running| &running.plan);
        let status = self
            .quorums
            .get(name)
            .and_then(|entry| entry.object.status.as_ref());
        let in_use: BTreeMap<String, String> = match running {
            Some(before) => before
                .masters
                .iter()
                .map(|m| (m.name.clone(), m.url.clone()))
                .collect(),
            None => status
                .iter()
                .flat_map(|status| &status.masters)
                .filter_map(|master| Some((master.name.clone(), master.url.clone()?)))
                .collect(),
        };
        for master in &mut plan.masters {
            if let Some(url) = in_use.get(&master.name) {
                master.url.clone_from(url);
            }
        }
        plan
    }

    /// Takes the next step of a change to these URLs. Returns why they are not in use yet.
    pub(super) fn change_urls(&mut self, name: &str, wanted: &QuorumPlan, at: &World<'_>) -> Option<Problem> {
        let now = at.now;
        let running = self.open.get(name)?;
        let in_use = |master: &str| {
            running
                .plan
                .masters
                .iter()
                .find(|m| m.name == master)
                .map(|m| m.url.clone())
        };
        let changed = wanted.masters.iter().find_map(|master| {
            let before = in_use(&master.name).filter(|before| *before != master.url)?;
            Some((master.name.clone(), before, master.url.clone()))
        });
        let entry = self.quorums.get_mut(name)?;
        let Some((master, old, new)) = changed else {
            entry.url_change = UrlChange::default();
            return None;
        };
        let stated = entry
            .object
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(STOPPED));
        let statement = statement(&master, &old);
        let stated = stated.is_some_and(|all| all.split(',').any(|one| one.trim() == statement));
        let change = &mut entry.url_change;
        if !change.asking && change.again_at.is_none_or(|at| at <= now) {
            change.asking = true;
            let old_server = if stated {
                OldServer::Stated
            } else {
                OldServer::MustAnswer
            };
            let retired = RetiredUrl {
                quorum: name.to_owned(),
                master: master.clone(),
                old,
                new,
            };
            self.effects
                .push(Effect::Masters(MastersRequest::RetireUrl(retired, old_server)));
        }
        let waits = || {
            Problem::new(
                Reason::ChangingUrl,
                format!("spec.masters: the url of {master} is being changed"),
            )
        };
        Some(change.problem.clone().unwrap_or_else(waits))
    }

    pub(super) fn on_retired(
        &mut self,
        retired: &RetiredUrl,
        outcome: Result<RetireOutcome, String>,
        at: &World<'_>,
    ) {
        let now = at.now;
        let (quorum, master, url) = (&*retired.quorum, &*retired.master, &*retired.new);
        let anyway = self.plants(Planted::ReplacesUnretiredUrl);
        let Some(entry) = self.quorums.get_mut(quorum) else {
            return;
        };
        entry.url_change.asking = false;
        entry.url_change.again_at = Some(now + AGAIN);
        let allowed = anyway || outcome.as_ref().is_ok_and(RetireOutcome::allows_new_url);
        // The object may have another URL by now.
        let wanted = entry
            .object
            .spec
            .masters
            .iter()
            .any(|m| m.name == master && m.url == url);
        if allowed && wanted {
            tracing::info!(quorum, master, url, ?outcome, "changing the url of a master");
            // Deferred: a refusal of the new URL arrives first, and the status must not show the change
            // before it.
            self.due.later.insert(quorum.to_owned());
            let problem = self.replace_url(retired, at);
            if let Some(entry) = self.quorums.get_mut(quorum) {
                entry.url_change = UrlChange {
                    problem,
                    ..UrlChange::default()
                };
            }
            return;
        }
        entry.url_change.problem = Some(problem(retired, outcome));
        self.due.quorums.insert(quorum.to_owned());
    }

    /// Starts to use the new URL. Returns why it cannot be used.
    fn replace_url(&mut self, retired: &RetiredUrl, at: &World<'_>) -> Option<Problem> {
        let open = self.open.get_mut(&retired.quorum)?;
        let mut plan = open.plan.clone();
        for known in plan
            .masters
            .iter_mut()
            .filter(|known| known.name == retired.master)
        {
            known.url.clone_from(&retired.new);
        }
        if let Found::Here(access) = at.views.access(&plan)
            && let Err(error) = check(&plan, &access, &self.me.cluster)
        {
            return Some(Problem::new(Reason::InvalidSpec, error.to_string()));
        }
        open.plan = plan;
        self.effects
            .push(Effect::Quorum(QuorumChange::ReplaceUrl(retired.clone())));
        None
    }

    /// Reverts to the old URL, which stays in use until a retry succeeds.
    pub(super) fn on_not_replaced(&mut self, retired: &RetiredUrl, error: String, at: &World<'_>) {
        if self.plants(Planted::ReplacesUrlOnce) {
            return;
        }
        let (Some(open), Some(entry)) = (
            self.open.get_mut(&retired.quorum),
            self.quorums.get_mut(&retired.quorum),
        ) else {
            return;
        };
        let mut masters = open.plan.masters.iter_mut();
        if let Some(known) = masters.find(|known| known.name == retired.master && known.url == retired.new) {
            known.url.clone_from(&retired.old);
        }
        entry.url_change = UrlChange {
            asking: false,
            again_at: Some(at.now + AGAIN),
            problem: Some(problem(retired, Err(error))),
        };
        self.due.quorums.insert(retired.quorum.clone());
    }
}

fn statement(master: &str, old: &str) -> String {
    format!("{master}={old}")
}

fn problem(retired: &RetiredUrl, outcome: Result<RetireOutcome, String>) -> Problem {
    let RetiredUrl {
        master,
        old,
        new: url,
        ..
    } = retired;
    let field = format!("spec.masters: the url of {master} cannot be changed to {url} yet");
    let annotation = format!("{STOPPED}={}", statement(master, old));
    let stated = format!("or, if that server is stopped permanently, set the annotation {annotation}");
    let (reason, text) = match outcome {
        Err(error) => (Reason::InvalidSpec, error),
        Ok(RetireOutcome::OldUnreachable { reason }) => (
            Reason::OldMasterStillReachable,
            format!(
                "the server behind the old url may still vote for others and cannot be reached ({reason}): make it \
                 reachable, {stated}"
            ),
        ),
        Ok(RetireOutcome::OldRefused { reason }) => (
            Reason::OldMasterStillReachable,
            format!(
                "the server behind the old url still has its vote ({reason}): make it writable, {stated}"
            ),
        ),
        Ok(RetireOutcome::RetiredForAnother { retirement }) => (
            Reason::OldMasterStillReachable,
            format!(
                "the old server was retired for another server ({retirement}); if that is the server of the new url, set \
                 the annotation {annotation}"
            ),
        ),
        Ok(RetireOutcome::OthersMissing { voting: 0, needed: 1 }) => (
            Reason::ChangingUrl,
            "this is the only master: its vote moves once the old server is stated to be stopped, and every lock is lost \
             for the wait of a seal; see docs/single-master.md"
                .to_owned(),
        ),
        Ok(RetireOutcome::OthersMissing { voting, needed }) => (
            Reason::ChangingUrl,
            format!(
                "without this master {voting} masters vote, and {needed} are needed: the change waits for the others"
            ),
        ),
        Ok(RetireOutcome::NewUnreachable { reason }) => (
            Reason::ChangingUrl,
            format!("the server behind the new url cannot be reached ({reason})"),
        ),
        Ok(RetireOutcome::NewRefused { reason }) => (
            Reason::ChangingUrl,
            format!("the server behind the new url cannot vote: {reason}"),
        ),
        Ok(
            RetireOutcome::SameServer
            | RetireOutcome::Retired
            | RetireOutcome::NotOurs
            | RetireOutcome::AnotherMaster
            | RetireOutcome::StatedStopped,
        ) => (Reason::ChangingUrl, "being changed".into()),
    };
    Problem::new(reason, format!("{field}: {text}"))
}
