//! Keeps all Jobs of a namespace with one watch, grouped by the CronJob that created them, regardless of the
//! number of locks that switch these CronJobs, or single Jobs.
//!
//! The watch may be behind the API server. Before a stop is confirmed, [`JobsOf::listed`] reads a complete list that
//! began later; callers that ask in the meantime share one list.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream};
use kube::{Api, Client, api::ListParams, runtime::watcher};
use tokio::{sync::watch, task::JoinSet, time};

use crate::{
    clock,
    lease::BootInstant,
    targets::{
        Change, TargetError, is_older, pages,
        slim::{Job, finished, maker, trimmed},
        watch_objects,
    },
};

/// The time for which a list is kept for callers that asked before it began.
const KEPT: Duration = Duration::from_secs(10);

/// Jobs that have not ended, by the CronJob that created them.
#[derive(Debug, Default)]
pub(in crate::targets) struct Index {
    made: HashMap<String, BTreeMap<String, Arc<Job>>>,
    /// The CronJob of each Job, including Jobs that ended; `None` for a Job of no CronJob.
    makers: HashMap<String, Option<String>>,
}

impl Index {
    /// Returns the Jobs of one CronJob.
    pub(in crate::targets) fn of(&self, cron_job: &str) -> Vec<Arc<Job>> {
        let made = self.made.get(cron_job);
        made.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Reports whether this CronJob created the Job of that name; `None` if no such Job is known.
    pub(in crate::targets) fn is_of(&self, cron_job: &str, job: &str) -> Option<bool> {
        let maker = self.makers.get(job)?;
        Some(maker.as_deref() == Some(cron_job))
    }

    /// Stores a Job. Returns the CronJobs whose Jobs have changed.
    fn put(&mut self, job: Job) -> [Option<String>; 2] {
        self.put_of(job, |_| true)
    }

    /// Like `put`, but stores only the creator for Jobs of CronJobs that `keeps` rejects.
    fn put_of(&mut self, job: Job, keeps: impl Fn(&str) -> bool) -> [Option<String>; 2] {
        let Some(name) = job.metadata.name.clone() else {
            return [None, None];
        };
        let maker = maker(&job.metadata).map(str::to_owned);
        let before = self.makers.insert(name.clone(), maker.clone()).flatten();
        let before = before.filter(|before| maker.as_ref() != Some(before));
        if let Some(before) = &before {
            self.take(before, &name);
        }
        let changed = maker.filter(|maker| {
            if finished(&job).is_some() || !keeps(maker) {
                return self.take(maker, &name);
            }
            let made = self.made.entry(maker.clone()).or_default();
            let job = Arc::new(trimmed(job));
            made.insert(name, job.clone()) != Some(job)
        });
        [before, changed]
    }

    /// Stores the answer to a write, unless the known Job is newer or gone.
    fn answer(&mut self, job: Job) {
        let name = job.metadata.name.as_ref();
        let known = maker(&job.metadata).and_then(|maker| self.made.get(maker)?.get(name?));
        let is_news = |known: &Arc<Job>| {
            known.metadata.uid == job.metadata.uid && !is_older(&job.metadata, &known.metadata)
        };
        if known.is_some_and(is_news) {
            self.put(job);
        }
    }

    fn remove(&mut self, name: &str) -> Option<String> {
        let maker = self.makers.remove(name).flatten()?;
        self.take(&maker, name);
        Some(maker)
    }

    /// Removes a Job of a CronJob. Returns true if the Job was known.
    fn take(&mut self, maker: &str, name: &str) -> bool {
        let Some(made) = self.made.get_mut(maker) else {
            return false;
        };
        let was_there = made.remove(name).is_some();
        if made.is_empty() {
            self.made.remove(maker);
        }
        was_there
    }
}

#[derive(Debug, Default)]
struct Content {
    /// The Jobs that the watch has shown.
    index: Index,
    /// Whether the first list was complete.
    synced: bool,
    trouble: Option<TargetError>,
    /// A counter of changes for each CronJob that is followed.
    followers: HashMap<String, watch::Sender<u64>>,
    /// The same for each Job that is itself a target.
    job_followers: HashMap<String, watch::Sender<u64>>,
}

impl Content {
    /// Notifies the followers of these CronJobs. During the first list they are not notified: its end notifies all.
    fn notify(&self, cron_jobs: impl IntoIterator<Item = String>) {
        for name in cron_jobs.into_iter().filter(|_| self.synced) {
            if let Some(follower) = self.followers.get(&name) {
                follower.send_modify(|count| *count += 1);
            }
        }
    }

    /// Notifies the followers of the Job of this name.
    fn notify_of_job(&self, name: Option<&String>) {
        let follower = name.and_then(|name| self.job_followers.get(name));
        if let Some(follower) = follower.filter(|_| self.synced) {
            follower.send_modify(|count| *count += 1);
        }
    }

    fn notify_all(&self) {
        let all = self.followers.values().chain(self.job_followers.values());
        all.for_each(|follower| follower.send_modify(|count| *count += 1));
    }

    fn known(&self) -> Option<&Index> {
        self.synced.then_some(&self.index)
    }

    fn see(&mut self, change: Change<Job>, what: &str) {
        match change {
            Change::Seen(job, _) => {
                self.notify_of_job(job.metadata.name.as_ref());
                let changed = self.index.put(job);
                self.notify(changed.into_iter().flatten());
            }
            Change::Gone(key) => {
                self.notify_of_job(Some(&key.name));
                let changed = self.index.remove(&key.name);
                self.notify(changed);
            }
            Change::Synced => {
                self.synced = true;
                self.trouble = None;
                self.notify_all();
            }
            Change::Failed(error) => self.fail(super::watch::failure(what, &error)),
        }
    }

    /// Records a failure. Only a complete list ends trouble that was reported.
    fn fail(&mut self, error: Option<TargetError>) {
        if error.is_some() && self.trouble != error {
            self.trouble = error;
            self.notify_all();
        }
    }
}

/// The progress of the last list.
#[derive(Clone, Debug)]
enum Listing {
    Idle,
    Running(BootInstant),
    /// The time at which the list began, and its result.
    Done(BootInstant, Result<Arc<Index>, TargetError>),
}

/// The Jobs of one namespace. The watch ends with its last follower.
#[derive(Debug)]
pub(super) struct Jobs {
    content: Arc<Mutex<Content>>,
    /// Notified when a list is needed.
    wanted: watch::Sender<()>,
    lists: watch::Receiver<Listing>,
    /// Aborted when this is dropped.
    _tasks: JoinSet<()>,
}

impl Jobs {
    pub(super) fn follow(client: &Client, namespace: &str) -> Self {
        let api = Api::<Job>::namespaced(client.clone(), namespace);
        let content = Arc::new(Mutex::new(Content::default()));
        let (wanted, asked) = watch::channel(());
        let (sender, lists) = watch::channel(Listing::Idle);
        let what = format!("following jobs in namespace {namespace}");
        let mut tasks = JoinSet::new();
        tasks.spawn(run(api.clone(), content.clone(), what));
        let what = format!("listing jobs in namespace {namespace}");
        tasks.spawn(list(api, content.clone(), asked, sender, what));
        Self {
            content,
            wanted,
            lists,
            _tasks: tasks,
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(api: Api<Job>, content: Arc<Mutex<Content>>, what: String) {
    let config = watcher::Config::default();
    let mut changes = pin!(watch_objects(api, config));
    while let Some(change) = changes.next().await {
        let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
        content.see(change, &what);
    }
}

async fn list(
    api: Api<Job>,
    content: Arc<Mutex<Content>>,
    mut wanted: watch::Receiver<()>,
    lists: watch::Sender<Listing>,
    what: String,
) {
    while wanted.changed().await.is_ok() {
        wanted.mark_unchanged();
        let began = clock::now();
        lists.send_replace(Listing::Running(began));
        let followed: HashSet<String> = {
            let content = content.lock().unwrap_or_else(PoisonError::into_inner);
            content.followers.keys().cloned().collect()
        };
        let mut index = Index::default();
        let found = pages::all(&api, ListParams::default(), |job| {
            index.put_of(job, |cron_job| followed.contains(cron_job));
            None::<()>
        })
        .await;
        let found = found.map(|_| Arc::new(index));
        let found = found.map_err(|error| TargetError::of(&*what, &error));
        lists.send_replace(Listing::Done(began, found));
        if time::timeout(KEPT, wanted.changed()).await.is_err() {
            lists.send_replace(Listing::Idle);
        } else {
            wanted.mark_changed();
        }
    }
}

/// Returns the counter of this name, and drops those without followers.
fn subscribe(followers: &mut HashMap<String, watch::Sender<u64>>, name: &str) -> watch::Receiver<u64> {
    followers.retain(|_, follower| follower.receiver_count() > 0);
    let follower = followers.entry(name.to_owned());
    follower.or_insert_with(|| watch::channel(0).0).subscribe()
}

/// A Job that is itself a target.
#[derive(Debug)]
pub(in crate::targets) struct FollowedJob {
    changes: watch::Receiver<u64>,
    /// The watch runs while it has followers.
    _jobs: Arc<Jobs>,
}

impl FollowedJob {
    pub(super) fn new(jobs: Arc<Jobs>, name: &str) -> Self {
        let mut changes = subscribe(&mut jobs.content().job_followers, name);
        // The watch may have shown the Job before.
        changes.mark_changed();
        Self { changes, _jobs: jobs }
    }

    /// Returns a stream with one item for each change of the Job, and when following it fails or recovers.
    pub(in crate::targets) fn changes(self) -> impl Stream<Item = ()> + Send {
        stream::unfold(self, |mut followed| async {
            followed.changes.changed().await.ok()?;
            Some(((), followed))
        })
    }
}

/// The Jobs of one CronJob.
#[derive(Clone, Debug)]
pub(in crate::targets) struct JobsOf {
    jobs: Arc<Jobs>,
    cron_job: String,
    changes: watch::Receiver<u64>,
}

impl JobsOf {
    pub(super) fn new(jobs: Arc<Jobs>, cron_job: &str) -> Self {
        let changes = subscribe(&mut jobs.content().followers, cron_job);
        Self {
            jobs,
            cron_job: cron_job.to_owned(),
            changes,
        }
    }

    /// Returns the Jobs that the watch shows; `None` before the first list is complete.
    pub(in crate::targets) fn known(&self) -> Result<Option<Vec<Arc<Job>>>, TargetError> {
        let content = self.jobs.content();
        match &content.trouble {
            Some(error) => Err(error.clone()),
            None => Ok(content.known().map(|known| known.of(&self.cron_job))),
        }
    }

    /// Reports whether this CronJob created the Job of that name, as the watch shows it; `None` if no such Job is
    /// known.
    pub(in crate::targets) fn is_known(&self, job: &str) -> Option<bool> {
        let content = self.jobs.content();
        content.known()?.is_of(&self.cron_job, job)
    }

    /// Returns all Jobs of the namespace, from a list that began at this time or later. A caller that gave up
    /// before the list was complete calls again with the same time.
    pub(in crate::targets) async fn listed(&self, since: BootInstant) -> Result<Arc<Index>, TargetError> {
        let mut lists = self.jobs.lists.clone();
        loop {
            let wanted = match &*lists.borrow_and_update() {
                Listing::Done(began, found) if *began >= since => return found.clone(),
                Listing::Running(began) => *began < since,
                Listing::Done(..) | Listing::Idle => true,
            };
            if wanted {
                self.jobs.wanted.send_replace(());
            }
            if lists.changed().await.is_err() {
                return Err(TargetError::Api {
                    what: "listing jobs".into(),
                    reason: "the task that lists them ended".into(),
                    refusal: true,
                });
            }
        }
    }

    /// Stores the answer to a write before the watch shows it; `None` for a Job that is gone.
    pub(in crate::targets) fn put(&self, name: &str, job: Option<Job>) {
        let mut content = self.jobs.content();
        match job {
            Some(job) => content.index.answer(job),
            None => drop(content.index.remove(name)),
        }
    }

    /// Returns a counter that grows with each change of the Jobs.
    pub(in crate::targets) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until a Job changes, or until following the Jobs fails or recovers.
    pub(in crate::targets) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests;
