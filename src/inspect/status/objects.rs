//! The locks that are declared as objects, joined with their leases on the masters.

mod table;

pub(super) use table::row as lock_row;

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde::Serialize;

use super::{DeclaredStatus, MasterReport, Source, Status, poll};
use crate::{
    api::LeaderLock,
    inspect::{
        Reach, Unreachable,
        cluster::{Blame, Cluster, ClusterError, DeclaredLock, Given, Unread, check_quorum, plan},
    },
};

/// The command to run where the masters can be reached.
const COMMAND: &str = "redlock status";

/// The locks to show, and how.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The names of the locks; all locks if empty.
    pub names: Vec<String>,
    pub all_namespaces: bool,
    pub quorum: Option<String>,
    pub registers: bool,
}

/// Everything that `status` shows of objects. `masters` and `locks` have the same fields as without objects.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectsStatus {
    pub quorums: Vec<QuorumShown>,
    pub masters: Vec<MasterShown>,
    pub locks: Vec<DeclaredStatus>,
    /// Objects that this version cannot read.
    pub unread: Vec<String>,
    /// The namespace; `None` for all namespaces.
    pub namespace: Option<String>,
    #[serde(skip)]
    every_account: bool,
}

/// One quorum that the locks name.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuorumShown {
    pub name: String,
    pub source: Source,
    /// The reason why its masters could not be read.
    pub trouble: Option<String>,
    pub fingerprint: Option<String>,
    pub majority: Option<usize>,
    pub answering: Option<usize>,
    pub voting: Option<usize>,
    #[serde(skip)]
    seen: Option<Status>,
    #[serde(skip)]
    failed: Option<Failed>,
}

/// One master of one of these quorums.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterShown {
    pub quorum: String,
    #[serde(flatten)]
    pub report: MasterReport,
}

/// The reason why the masters of a quorum could not be read. The worst reason decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failed {
    /// No majority answers.
    Reach,
    Configuration,
    Rights,
}

/// Collects the locks that are declared as objects.
///
/// # Errors
/// Returns an error if the locks cannot be read. For a quorum that cannot be read, the statuses of the
/// objects are shown.
pub async fn gather_declared(
    cluster: &Cluster,
    given: &Given,
    wanted: &Wanted,
) -> Result<ObjectsStatus, ClusterError> {
    let (objects, unread) = objects(cluster, wanted).await?;
    let mut by_quorum: BTreeMap<String, Vec<LeaderLock>> = BTreeMap::new();
    if let Some(name) = &wanted.quorum {
        by_quorum.insert(name.clone(), Vec::new());
    }
    for object in objects {
        let quorum = object.spec.quorum_ref.name.clone();
        by_quorum.entry(quorum).or_default().push(object);
    }
    let each = by_quorum.into_iter();
    let each = each.map(|(name, objects)| of_quorum(cluster, given, name, objects, wanted.registers));
    let (mut quorums, mut masters, mut locks) = (Vec::new(), Vec::new(), Vec::new());
    for (quorum, found) in join_all(each).await {
        let reports = quorum.seen.iter().flat_map(|seen| seen.masters.iter().cloned());
        masters.extend(reports.map(|report| MasterShown {
            quorum: quorum.name.clone(),
            report,
        }));
        quorums.push(quorum);
        locks.extend(found);
    }
    locks.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(ObjectsStatus {
        quorums,
        masters,
        locks,
        unread: unread.iter().map(describe).collect(),
        namespace: (!wanted.all_namespaces).then(|| cluster.namespace().to_owned()),
        every_account: !wanted.names.is_empty(),
    })
}

fn describe(unread: &Unread) -> String {
    format!(
        "LeaderLock {}/{}: {}",
        unread.namespace, unread.name, unread.reason
    )
}

async fn objects(cluster: &Cluster, wanted: &Wanted) -> Result<(Vec<LeaderLock>, Vec<Unread>), ClusterError> {
    if wanted.names.is_empty() {
        let quorum = wanted.quorum.as_deref();
        return cluster.locks(wanted.all_namespaces, quorum).await;
    }
    let mut found = Vec::new();
    for name in &wanted.names {
        let object = cluster.lock(name).await?;
        check_quorum(&object, wanted.quorum.as_deref())?;
        found.push(object);
    }
    Ok((found, Vec::new()))
}

async fn of_quorum(
    cluster: &Cluster,
    given: &Given,
    name: String,
    objects: Vec<LeaderLock>,
    registers: bool,
) -> (QuorumShown, Vec<DeclaredStatus>) {
    let opened = async {
        let quorum = cluster.quorum(&name).await?;
        Ok::<_, ClusterError>((plan(&quorum)?, cluster.session(&quorum, given).await?))
    };
    let (plan, session) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return fallen_back(name, objects, &error),
    };
    let (mut declared, mut names, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        match DeclaredLock::of(object.clone(), &plan) {
            Ok(lock) => {
                names.push(lock.lock_name);
                declared.push(lock.object);
            }
            Err(error) => broken.push(DeclaredStatus::of_status(object, None, Some(error.to_string()))),
        }
    }
    let seen = poll(&session, &names, registers).await;
    let away = session.unreachable(&name, COMMAND);
    session.close().await;
    let each = declared.into_iter().zip(names).zip(seen.locks.clone());
    let locks = each.map(|((object, name), seen)| match &away {
        None => DeclaredStatus::of_masters(object, seen),
        Some(_) => DeclaredStatus::of_status(object, Some(name), None),
    });
    let locks = locks.chain(broken).collect();
    (shown(name, Some(seen), away), locks)
}

fn shown(name: String, seen: Option<Status>, away: Option<Unreachable>) -> QuorumShown {
    QuorumShown {
        name,
        source: away.as_ref().map_or(Source::Masters, |_| Source::Statuses),
        failed: away.as_ref().map(|away| match away.reach {
            Reach::Refused => Failed::Rights,
            Reach::Majority | Reach::TooFew => Failed::Reach,
        }),
        trouble: away.map(|away| away.text),
        fingerprint: seen.as_ref().map(|seen| seen.fingerprint.clone()),
        majority: seen.as_ref().map(|seen| seen.majority),
        answering: seen.as_ref().map(|seen| seen.answering),
        voting: seen.as_ref().map(|seen| seen.voting),
        seen,
    }
}

pub(super) fn cluster_failed(error: &ClusterError) -> Failed {
    match error.blame() {
        Blame::Rights => Failed::Rights,
        Blame::Usage | Blame::Configuration => Failed::Configuration,
    }
}

fn fallen_back(
    name: String,
    objects: Vec<LeaderLock>,
    error: &ClusterError,
) -> (QuorumShown, Vec<DeclaredStatus>) {
    let failed = cluster_failed(error);
    let quorum = QuorumShown {
        source: Source::Statuses,
        trouble: Some(error.to_string()),
        failed: Some(failed),
        ..shown(name, None, None)
    };
    let locks = objects
        .into_iter()
        .map(|object| DeclaredStatus::of_status(object, None, None));
    (quorum, locks.collect())
}

impl ObjectsStatus {
    /// Returns the worst reason why masters could not be read, if there is one.
    #[must_use]
    pub fn failed(&self) -> Option<Failed> {
        let of_locks = self.locks.iter().filter(|lock| lock.trouble.is_some());
        let of_locks = of_locks.map(|_| Failed::Configuration);
        let all = self.quorums.iter().filter_map(|quorum| quorum.failed);
        all.chain(of_locks).max()
    }

    /// Returns the status as tables.
    #[must_use]
    pub fn text(&self) -> String {
        table::write(self)
    }
}

/// Returns a status without masters.
#[cfg(test)]
pub(super) fn sample(locks: Vec<DeclaredStatus>) -> ObjectsStatus {
    ObjectsStatus {
        quorums: Vec::new(),
        masters: Vec::new(),
        locks,
        unread: Vec::new(),
        namespace: None,
        every_account: false,
    }
}
