//! What the pod templates of a lock's targets say, where nobody wrote down how long they take to stop.
//!
//! Each is read when its lock is first judged, and again when its object was asked for something else. A task for each
//! follows the object by the watch that it shares with others; nothing is asked again and again that was answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::JoinHandle,
    time,
};

use super::{object::ObjectKey, pace::Pace};
use crate::{
    api::{
        LeaderLock,
        target::{Action, TargetRef},
        validate::{Grace, Graces},
    },
    clock,
    targets::{Shared, TargetError, Template},
};

/// An API server that takes longer is asked again later.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries while it cannot be asked, or does not know the kind.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Those of one lock.
#[derive(Debug, Default)]
pub(super) struct Templates(BTreeMap<TargetRef, Reading>);

#[derive(Debug)]
struct Reading {
    task: JoinHandle<()>,
    hurry: Arc<Notify>,
    /// It was read, or is known not to be readable now.
    answered: bool,
    grace: Option<Grace>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was read of one.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) key: ObjectKey,
    reference: TargetRef,
    /// None without an object or a template, or while it may not be read.
    grace: Option<Grace>,
}

impl Templates {
    /// Those that the object needs, and no others; `start` begins to follow one.
    pub(super) fn follow(
        &mut self,
        object: &LeaderLock,
        mut start: impl FnMut(TargetRef, Arc<Notify>) -> JoinHandle<()>,
    ) {
        let wanted = wanted(object);
        self.0.retain(|reference, _| wanted.contains(reference));
        for reference in wanted {
            self.0.entry(reference.clone()).or_insert_with(|| {
                let hurry = Arc::new(Notify::new());
                Reading {
                    task: start(reference, hurry.clone()),
                    hurry,
                    answered: false,
                    grace: None,
                }
            });
        }
    }

    /// Whether that is news.
    pub(super) fn take(&mut self, read: &Read) -> bool {
        let Some(reading) = self.0.get_mut(&read.reference) else {
            return false;
        };
        // Of an object that is gone the last is the best that is known: it may be made anew in a moment.
        let grace = read.grace.or(reading.grace);
        let news = !reading.answered || reading.grace != grace;
        (reading.answered, reading.grace) = (true, grace);
        news
    }

    pub(super) fn graces(&self) -> Graces {
        let read = self.0.iter();
        read.filter_map(|(reference, reading)| Some((reference.clone(), reading.grace?)))
            .collect()
    }

    /// One is still being read for the first time.
    pub(super) fn awaited(&self) -> bool {
        self.0.values().any(|reading| !reading.answered)
    }

    /// The lock cannot be used before they are read: they do not wait for their turn.
    pub(super) fn hurry(&self) {
        let awaited = self.0.values().filter(|reading| !reading.answered);
        awaited.for_each(|reading| reading.hurry.notify_one());
    }
}

/// The objects of targets that have to be stopped in a time that nobody gave.
fn wanted(object: &LeaderLock) -> BTreeSet<TargetRef> {
    let stopped = object.spec.targets.iter().filter(|target| {
        target.stop_seconds.is_none() && matches!(target.action, Action::Scale | Action::Suspend)
    });
    stopped.filter_map(|target| target.reference.clone()).collect()
}

/// What reads them.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
    pub(super) pace: Arc<Pace>,
    /// One waits for a turn at a time.
    pub(super) turns: Arc<Semaphore>,
}

impl Reader {
    /// Tells what the template says, whenever that changes.
    pub(super) fn start<T: Send + 'static>(
        &self,
        key: ObjectKey,
        reference: TargetRef,
        hurry: Arc<Notify>,
        told: mpsc::Sender<T>,
        tell: fn(Read) -> T,
    ) -> JoinHandle<()> {
        tokio::spawn(self.clone().run(key, reference, hurry, told, tell))
    }

    async fn run<T>(
        self,
        key: ObjectKey,
        reference: TargetRef,
        hurry: Arc<Notify>,
        told: mpsc::Sender<T>,
        tell: fn(Read) -> T,
    ) {
        let mut template = None;
        let mut pause = SHORTEST;
        let mut said = None;
        let mut failed = false;
        loop {
            self.turn(&hurry).await;
            let read = self.read(&mut template, &key.namespace, &reference);
            let read = time::timeout(PATIENCE, read).await;
            let news = match &read {
                Ok(Ok(grace)) => Some(*grace),
                // What was read before is still the best that is known.
                _ if said.is_some() => None,
                Ok(Err(error)) if error.is_refusal() => Some(None),
                // Once is not enough to take what a lock guards for something that it cannot.
                _ => std::mem::replace(&mut failed, true).then_some(None),
            };
            if let Some(grace) = news
                && said != Some(grace)
            {
                said = Some(grace);
                let (key, reference) = (key.clone(), reference.clone());
                let read = Read {
                    key,
                    reference,
                    grace,
                };
                if told.send(tell(read)).await.is_err() {
                    return;
                }
            }
            match (&mut template, read) {
                // It is said why where something is to be switched.
                (Some(template), Ok(Ok(_) | Err(TargetError::Forbidden { .. }))) => {
                    pause = SHORTEST;
                    template.changed().await;
                }
                (_, read) => {
                    if matches!(read, Ok(Err(TargetError::NotServed { .. }))) {
                        // Found again in the version that is served now.
                        template = None;
                    }
                    time::sleep(pause).await;
                    pause = LONGEST.min(pause * 2);
                }
            }
        }
    }

    async fn read(
        &self,
        template: &mut Option<Template>,
        namespace: &str,
        reference: &TargetRef,
    ) -> Result<Option<Grace>, TargetError> {
        let template = match template {
            Some(template) => template,
            None => {
                let found = Template::find(&self.client, &self.shared, namespace, reference).await?;
                template.insert(found)
            }
        };
        template.grace().await
    }

    async fn turn(&self, hurry: &Notify) {
        let spared = async {
            // Never closed.
            let _turn = self.turns.acquire().await;
            self.pace.spared().await;
        };
        tokio::select! {
            biased;
            () = hurry.notified() => self.pace.count(1, clock::now()),
            () = spared => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(targets: &str) -> LeaderLock {
        serde_yaml::from_str(&format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
             spec: {{quorumRef: {{name: q}}, targets: [{targets}]}}}}"
        ))
        .unwrap()
    }

    fn target(name: &str, more: &str) -> String {
        format!("{{name: {name}, ref: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}, {more}}},")
    }

    fn read(name: &str, seconds: Option<u64>) -> Read {
        Read {
            key: ObjectKey {
                namespace: "n".into(),
                name: "l".into(),
            },
            reference: TargetRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: name.into(),
            },
            grace: seconds.map(|seconds| Duration::from_secs(seconds).into()),
        }
    }

    #[tokio::test]
    async fn only_what_is_needed_is_read_and_what_is_not_declared_is_forgotten() {
        let mut templates = Templates::default();
        let mut started = Vec::new();
        let mut follow = |templates: &mut Templates, object: &LeaderLock| {
            templates.follow(object, |reference, _| {
                started.push(reference.name);
                tokio::spawn(std::future::pending())
            });
            std::mem::take(&mut started)
        };
        let a = target("a", "action: Scale");
        let rest = target("b", "action: Scale, stopSeconds: 5") + &target("c", "action: OncePerSchedule");
        let both = object(&format!("{a}{rest}{}", target("d", "action: Suspend")));
        assert_eq!(follow(&mut templates, &both), ["a", "d"]);
        assert_eq!(follow(&mut templates, &both), [""; 0]);
        assert!(templates.awaited());
        assert!(templates.take(&read("a", Some(2))));
        assert!(!templates.take(&read("a", Some(2))), "no news");
        assert!(!templates.take(&read("a", None)), "it is gone");
        assert!(!templates.take(&read("b", Some(2))), "not asked for");
        assert!(templates.awaited());
        assert!(
            templates.take(&read("d", None)),
            "that it cannot be read is an answer"
        );
        assert!(!templates.awaited());
        let known = |name, seconds: u64| {
            let read = read(name, Some(seconds));
            [(read.reference, Duration::from_secs(seconds))]
                .into_iter()
                .collect()
        };
        assert_eq!(templates.graces(), known("a", 2));

        assert_eq!(follow(&mut templates, &object(&rest)), [""; 0]);
        assert_eq!(templates.graces(), Graces::default());
        assert_eq!(follow(&mut templates, &object(&a)), ["a"]);
        assert!(templates.awaited());
    }
}
