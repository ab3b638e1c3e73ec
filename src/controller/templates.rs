//! Reads the parts of targets' objects other than their scale: how long their pods take to stop, if the lock
//! does not declare it, and whether a rollout of a single pod surges.
//!
//! Each object is read when its lock is first judged, and again when its specification changes. One task per object
//! follows it through the shared watch, so an answered request is not repeated.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::JoinHandle,
    time,
};

use super::{object::ObjectKey, rate_limiter::RateLimiter};
use crate::{
    api::{
        LeaderLock,
        plan::AwaitedTemplate,
        target::{Action, ScaleSettings, TargetRef},
        validate::Graces,
    },
    clock,
    targets::{Content, Rollout, Shared, TargetError, Template, is_judged},
};

/// The timeout of a request, which is then retried later.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between retries while the API server cannot be reached, or does not know the kind.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// The interval between reads of a missing object that cannot be watched.
const UNFOLLOWED: Duration = Duration::from_secs(5);

/// The templates of one lock.
#[derive(Debug, Default)]
pub(super) struct Templates(BTreeMap<TargetRef, Reading>);

#[derive(Debug)]
struct Reading {
    purpose: Purpose,
    state: Option<TemplateState>,
    /// The last content.
    content: Content,
}

/// The result of the last read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateState {
    Present(Content),
    Missing,
    /// The object may not be read, or its kind is not served.
    Unreadable,
}

/// The purposes for which an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Purpose {
    /// Whether the stop time is needed: the lock does not declare it, and may not be usable before it is
    /// known.
    stop_time: bool,
    /// Whether the rollout is judged: the target has one pod while the lock is held, and two for a time if it
    /// surges.
    rollout: bool,
}

/// Whether two pods of a single-pod target run during a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Surges {
    /// The lock has no single-pod target.
    NotJudged,
    /// The answer is not known for at least one target.
    Unknown,
    Never,
    /// The objects that surge, by kind and name.
    Of(Vec<String>),
}

/// The result of reading one object.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) key: ObjectKey,
    reference: TargetRef,
    state: TemplateState,
}

impl Templates {
    /// Keeps exactly the references that the object needs. Returns those to follow from now on, and those to stop
    /// following.
    pub(super) fn follow(&mut self, object: &LeaderLock) -> (Vec<TargetRef>, Vec<TargetRef>) {
        let wanted = wanted(object);
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        self.0.retain(|reference, _| {
            let keep = wanted.contains_key(reference);
            if !keep {
                ended.push(reference.clone());
            }
            keep
        });
        for (reference, purpose) in wanted {
            let reading = self.0.entry(reference.clone()).or_insert_with(|| {
                begun.push(reference);
                Reading {
                    purpose,
                    state: None,
                    content: Content::default(),
                }
            });
            reading.purpose = purpose;
        }
        (begun, ended)
    }

    /// Returns the followed references.
    pub(super) fn references(&self) -> impl Iterator<Item = &TargetRef> {
        self.0.keys()
    }

    /// Stores a result and reports whether it is news.
    pub(super) fn take(&mut self, read: &Read) -> bool {
        let Some(reading) = self.0.get_mut(&read.reference) else {
            return false;
        };
        // The last content of a deleted object is kept as the best knowledge: the object may soon be created
        // again.
        let found = match read.state {
            TemplateState::Present(content) => content,
            TemplateState::Missing | TemplateState::Unreadable => Content::default(),
        };
        let content = Content {
            grace: found.grace.or(reading.content.grace),
            rollout: found.rollout.or(reading.content.rollout),
        };
        let state = Some(read.state);
        let news = reading.state != state || reading.content != content;
        (reading.state, reading.content) = (state, content);
        news
    }

    pub(super) fn graces(&self) -> Graces {
        let read = self.0.iter().filter(|(_, reading)| reading.purpose.stop_time);
        let graces: Graces = read
            .filter_map(|(reference, reading)| Some((reference.clone(), reading.content.grace?)))
            .collect();
        graces.awaiting(self.awaited_templates())
    }

    /// Returns the objects whose stop times are not known, and may become known.
    fn awaited_templates(&self) -> BTreeMap<TargetRef, AwaitedTemplate> {
        let read = self.0.iter().filter(|(_, reading)| reading.purpose.stop_time);
        let awaited = read.filter_map(|(reference, reading)| {
            let awaited = match reading.state {
                None => AwaitedTemplate::Unread,
                Some(TemplateState::Missing) => AwaitedTemplate::Missing,
                Some(TemplateState::Present(_) | TemplateState::Unreadable) => return None,
            };
            Some((reference.clone(), awaited))
        });
        awaited.collect()
    }

    pub(super) fn surges(&self) -> Surges {
        let judged = || self.0.iter().filter(|(_, reading)| reading.purpose.rollout);
        let found =
            |wanted: Option<Rollout>| judged().filter(move |(_, reading)| reading.content.rollout == wanted);
        let surging: Vec<String> = found(Some(Rollout::Surges))
            .map(|(reference, _)| format!("{} {}", reference.kind, reference.name))
            .collect();
        if !surging.is_empty() {
            Surges::Of(surging)
        } else if judged().next().is_none() {
            Surges::NotJudged
        } else if found(None).next().is_some() {
            Surges::Unknown
        } else {
            Surges::Never
        }
    }

    /// Reports whether a stop time is still being read for the first time.
    pub(super) fn awaited(&self) -> bool {
        self.unread().next().is_some()
    }

    /// Returns the references whose stop time is not read yet.
    pub(super) fn unread(&self) -> impl Iterator<Item = &TargetRef> {
        let unread = |reading: &Reading| reading.purpose.stop_time && reading.state.is_none();
        let all = self.0.iter().filter(move |(_, reading)| unread(reading));
        all.map(|(reference, _)| reference)
    }
}

/// Returns the objects to read: those of targets without a declared stop time, and those of targets with a single pod.
fn wanted(object: &LeaderLock) -> BTreeMap<TargetRef, Purpose> {
    let targets = object.spec.targets.iter();
    let wanted = targets.filter_map(|target| {
        let reference = target.reference.clone()?;
        let single = |scale: &ScaleSettings| scale.active_replicas.unwrap_or(1) == 1;
        let purpose = Purpose {
            stop_time: target.stop_seconds.is_none()
                && matches!(target.action, Action::Scale | Action::Suspend),
            rollout: target.action == Action::Scale
                && is_judged(&reference)
                && target.scale.as_ref().is_none_or(single),
        };
        (purpose.stop_time || purpose.rollout).then_some((reference, purpose))
    });
    wanted.collect()
}

/// The tasks that follow templates, by lock.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<(ObjectKey, TargetRef), Following>);

#[derive(Debug)]
struct Following {
    task: JoinHandle<()>,
    hurry: Arc<Notify>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Readings {
    /// Starts to follow an object. The task that `start` returns hurries when it is notified.
    pub(super) fn begin(
        &mut self,
        key: ObjectKey,
        reference: TargetRef,
        start: impl FnOnce(Arc<Notify>) -> JoinHandle<()>,
    ) {
        let hurry = Arc::new(Notify::new());
        let task = start(hurry.clone());
        self.0.insert((key, reference), Following { task, hurry });
    }

    pub(super) fn end(&mut self, key: ObjectKey, reference: TargetRef) {
        self.0.remove(&(key, reference));
    }

    pub(super) fn hurry(&self, key: ObjectKey, reference: TargetRef) {
        if let Some(following) = self.0.get(&(key, reference)) {
            following.hurry.notify_one();
        }
    }
}

/// The shared resources for reading templates.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
    pub(super) rate_limiter: Arc<RateLimiter>,
    /// The permit to wait for a turn, which one reader has at a time.
    pub(super) turns: Arc<Semaphore>,
}

impl Reader {
    /// Starts a task that reports the content of the template whenever it changes.
    pub(super) fn start<T: Send + 'static>(
        &self,
        key: ObjectKey,
        reference: TargetRef,
        hurry: Arc<Notify>,
        sender: mpsc::Sender<T>,
        wrap: fn(Read) -> T,
    ) -> JoinHandle<()> {
        tokio::spawn(self.clone().run(key, reference, hurry, sender, wrap))
    }

    async fn run<T>(
        self,
        key: ObjectKey,
        reference: TargetRef,
        hurry: Arc<Notify>,
        sender: mpsc::Sender<T>,
        wrap: fn(Read) -> T,
    ) {
        let mut template = None;
        let mut pause = SHORTEST;
        let mut last_sent = None;
        let (mut failed, mut hurried) = (false, false);
        loop {
            // The target is not started before its template is read.
            if hurried || last_sent == Some(TemplateState::Missing) {
                self.rate_limiter.count(1, clock::now());
            } else {
                hurried = self.turn(&hurry).await;
            }
            let read = self.read(&mut template, &key.namespace, &reference);
            let read = time::timeout(PATIENCE, read).await;
            let news = match &read {
                Ok(Ok(Some(content))) => Some(TemplateState::Present(*content)),
                Ok(Ok(None)) => Some(TemplateState::Missing),
                // The content read before is still the best knowledge.
                _ if matches!(
                    last_sent,
                    Some(TemplateState::Present(_) | TemplateState::Unreadable)
                ) =>
                {
                    None
                }
                Ok(Err(error)) if error.is_refusal() => Some(TemplateState::Unreadable),
                // A single failure is not enough to conclude that the object cannot be read.
                _ => std::mem::replace(&mut failed, true).then_some(TemplateState::Unreadable),
            };
            if let Some(state) = news
                && last_sent != Some(state)
            {
                (last_sent, hurried) = (Some(state), false);
                let (key, reference) = (key.clone(), reference.clone());
                let read = Read {
                    key,
                    reference,
                    state,
                };
                if sender.send(wrap(read)).await.is_err() {
                    return;
                }
            }
            match (&mut template, read) {
                // The target is not started before its object is read, so a watch that fails must not delay that for long.
                (Some(template), Ok(Ok(None))) => {
                    pause = SHORTEST;
                    let bound = if template.is_followed() {
                        LONGEST
                    } else {
                        UNFOLLOWED
                    };
                    // The object is read again in either case.
                    let _ = time::timeout(bound, template.changed()).await;
                }
                // The reason is reported when a target is to be switched.
                (
                    Some(template),
                    Ok(Ok(Some(_)) | Err(TargetError::Forbidden { .. } | TargetError::Denied { .. })),
                ) => {
                    pause = SHORTEST;
                    template.changed().await;
                }
                (_, read) => {
                    if matches!(read, Ok(Err(TargetError::NotServed { .. }))) {
                        // The object is searched for again, in the API version that is served now.
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
    ) -> Result<Option<Content>, TargetError> {
        let template = match template {
            Some(template) => template,
            None => {
                let found = Template::find(&self.client, &self.shared, namespace, reference).await?;
                template.insert(found)
            }
        };
        template.read().await
    }

    /// Waits for a turn. Returns whether the read was hurried.
    async fn turn(&self, hurry: &Notify) -> bool {
        let spared = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            self.rate_limiter.spared().await;
        };
        tokio::select! {
            biased;
            () = hurry.notified() => {
                self.rate_limiter.count(1, clock::now());
                true
            }
            () = spared => false,
        }
    }
}

#[cfg(test)]
mod tests;
