//! One target, and how far it is from where it should be.

use std::{pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt};
use kube::{
    Client,
    runtime::{WatchStreamExt, watcher::watcher},
};
use tokio::time;

use crate::{
    api::{
        lock_status::TargetState,
        plan::{TargetPlan, TargetWork},
        target::TargetRef,
    },
    clock,
    controller::observe::Pause,
    lease::Moment,
    targets::{
        TargetError, resource,
        scale::{Scale, Sight, Write},
    },
};

/// An API server that takes longer is not waited for: the next step looks again, and a lease may end meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// A write that was not answered may still be done: the API server gives a request up after a minute.
const IN_FLIGHT: Duration = Duration::from_secs(70);
/// What is still there this long before the end is deleted with the time that is left.
const DELETE_BEFORE: Duration = Duration::from_secs(3);

/// Something about the object changed.
pub(super) type Changes = Pin<Box<dyn Stream<Item = ()> + Send>>;

/// How one step towards the goal ended.
#[derive(Debug)]
pub(super) enum Step {
    Done,
    Working,
    Trouble(&'static str, String),
}

pub(super) struct Switch {
    pub(super) name: String,
    pub(super) observed: TargetState,
    client: Client,
    namespace: String,
    work: Work,
    /// Found once: which resource the kind of the object is.
    scale: Option<Scale>,
    /// When a write that starts it was sent and not answered: until it must be over, nothing is confirmed as stopped.
    unanswered: Option<Moment>,
}

enum Work {
    Scale {
        reference: TargetRef,
        active: i32,
        standby: i32,
    },
    /// Actions that this version does not know how to do.
    Unsupported(&'static str),
}

impl Work {
    fn of(target: &TargetPlan) -> Self {
        match &target.work {
            TargetWork::Scale {
                object,
                active_replicas,
                standby_replicas,
            } => Self::Scale {
                reference: object.clone(),
                active: *active_replicas,
                standby: *standby_replicas,
            },
            TargetWork::Suspend { .. } => Self::Unsupported("Suspend"),
            TargetWork::OncePerSchedule { .. } => Self::Unsupported("OncePerSchedule"),
            TargetWork::LabelPods { .. } => Self::Unsupported("LabelPods"),
        }
    }
}

impl Switch {
    pub(super) fn new(client: &Client, namespace: &str, target: &TargetPlan) -> Self {
        Self {
            name: target.name.clone(),
            observed: TargetState::Unknown,
            client: client.clone(),
            namespace: namespace.to_owned(),
            work: Work::of(target),
            scale: None,
            unanswered: None,
        }
    }

    /// Whether this is about the same object, switched in the same way; its name and numbers may be others.
    pub(super) fn does(&self, target: &TargetPlan) -> bool {
        match (&self.work, &target.work) {
            (Work::Scale { reference, .. }, TargetWork::Scale { object, .. }) => reference == object,
            _ => false,
        }
    }

    /// As it is declared now.
    pub(super) fn declared(mut self, target: &TargetPlan) -> Self {
        self.name.clone_from(&target.name);
        self.work = Work::of(target);
        self
    }

    /// Follows the object, so that somebody else's hand is noticed at once.
    pub(super) fn changes(&self) -> Option<Changes> {
        let Work::Scale { reference, .. } = &self.work else {
            return None;
        };
        let (client, namespace, reference) = (self.client.clone(), self.namespace.clone(), reference.clone());
        let stream = futures_util::stream::once(async move {
            let found = resource(&client, &reference).await.ok();
            let scale = found.map(|resource| Scale::new(&client, &namespace, &reference, &resource));
            scale.map(|scale| {
                let (api, config) = scale.followed();
                watcher(api, config).backoff(Pause::default())
            })
        });
        let stream = stream.filter_map(|events| async { events }).flatten();
        Some(Box::pin(stream.map(|_| ())))
    }

    async fn scale(&mut self) -> Result<Option<(Scale, i32, i32)>, TargetError> {
        let Work::Scale {
            reference,
            active,
            standby,
        } = &self.work
        else {
            return Ok(None);
        };
        let (active, standby) = (*active, *standby);
        if self.scale.is_none() {
            let resource = resource(&self.client, reference).await?;
            self.scale = Some(Scale::new(&self.client, &self.namespace, reference, &resource));
        }
        Ok(self.scale.clone().map(|scale| (scale, active, standby)))
    }

    /// Only looks.
    pub(super) async fn look(&mut self) {
        if time::timeout(PATIENCE, self.try_look()).await.is_err() {
            self.observed = TargetState::Unknown;
        }
    }

    /// `may` is asked after the last await before the write.
    pub(super) async fn start(&mut self, may: impl Fn() -> bool) -> Step {
        match time::timeout(PATIENCE, self.try_start(may)).await {
            Ok(step) => step,
            Err(_) => self.silent(),
        }
    }

    /// Done when the pods are gone, not when the number is written.
    pub(super) async fn stop(&mut self, by: Option<Moment>) -> Step {
        match time::timeout(PATIENCE, self.try_stop(by)).await {
            Ok(step) => step,
            Err(_) => self.silent(),
        }
    }

    async fn try_look(&mut self) {
        self.observed = match self.scale().await {
            Ok(Some((scale, active, standby))) => match scale.look().await {
                Ok(sight) => state(&sight, active, standby),
                Err(_) => TargetState::Unknown,
            },
            Ok(None) | Err(_) => TargetState::Unknown,
        };
    }

    async fn try_start(&mut self, may: impl Fn() -> bool) -> Step {
        let (scale, active, standby) = match self.scale().await {
            Ok(Some(found)) => found,
            Ok(None) => return self.unsupported(),
            Err(error) => return self.failed(&error),
        };
        let sight = match scale.look().await {
            Ok(sight) => sight,
            Err(error) => return self.failed(&error),
        };
        self.observed = state(&sight, active, standby);
        let Sight::Here { wanted, .. } = sight else {
            return Step::Trouble("TargetNotFound", format!("{} does not exist", scale.called()));
        };
        if wanted == active {
            self.unanswered = None;
            return Step::Done;
        }
        let before = self.unanswered.replace(clock::now());
        let written = scale.start(active, may).await;
        match &written {
            // It is another version of the object now, for which an earlier write is too late.
            Ok(Write::Done | Write::Missing) => self.unanswered = None,
            Ok(Write::Conflict(_) | Write::Late) => self.unanswered = before,
            Err(error) if error.is_refusal() => self.unanswered = before,
            Err(_) => {}
        }
        match written {
            Ok(Write::Done) => {
                self.observed = TargetState::Active;
                Step::Done
            }
            Ok(Write::Missing) => {
                Step::Trouble("TargetNotFound", format!("{} does not exist", scale.called()))
            }
            Ok(Write::Conflict(who)) => Step::Trouble("EnforcementConflict", who),
            Ok(Write::Late) => Step::Working,
            Err(error) => self.failed(&error),
        }
    }

    async fn try_stop(&mut self, by: Option<Moment>) -> Step {
        let (scale, active, standby) = match self.scale().await {
            Ok(Some(found)) => found,
            Ok(None) => return self.unsupported(),
            Err(TargetError::UnknownKind { .. }) => {
                self.observed = TargetState::Standby;
                return Step::Done;
            }
            Err(error) => return self.failed(&error),
        };
        let sight = match scale.look().await {
            Ok(sight) => sight,
            Err(error) => return self.failed(&error),
        };
        self.observed = state(&sight, active, standby);
        // A missing target counts as stopped.
        let Sight::Here {
            wanted,
            counted,
            selector,
        } = sight
        else {
            return Step::Done;
        };
        if wanted > standby {
            match scale.stop(standby).await {
                Ok(Write::Done) => self.observed = TargetState::Changing,
                Ok(Write::Missing) => return Step::Done,
                Ok(Write::Conflict(_) | Write::Late) => {}
                Err(error) => return self.failed(&error),
            }
            return Step::Working;
        }
        let left = match &selector {
            Some(selector) => match scale.pods(selector).await {
                Ok(pods) => pods,
                Err(error) => return self.failed(&error),
            },
            None => Vec::new(),
        };
        let keep = usize::try_from(standby).unwrap_or(0);
        let in_flight = self
            .unanswered
            .is_some_and(|sent| clock::now().since(sent) < IN_FLIGHT);
        if counted <= standby && left.len() <= keep && !in_flight {
            self.unanswered = None;
            self.observed = TargetState::Standby;
            return Step::Done;
        }
        self.observed = TargetState::Changing;
        let now = clock::now();
        if let Some(by) = by
            && by.left(now) <= DELETE_BEFORE
            && keep == 0
        {
            let grace = u32::try_from(by.left(now).as_secs()).unwrap_or(0);
            for pod in &left {
                if let Err(error) = scale.delete_pod(pod, grace).await {
                    return self.failed(&error);
                }
            }
        }
        Step::Working
    }

    fn unsupported(&mut self) -> Step {
        self.observed = TargetState::Unknown;
        let Work::Unsupported(action) = self.work else {
            return Step::Working;
        };
        Step::Trouble(
            "NotSupported",
            format!("target {}: this version does not switch by {action}", self.name),
        )
    }

    fn silent(&mut self) -> Step {
        self.observed = TargetState::Unknown;
        let text = format!("target {}: the API server does not answer in time", self.name);
        Step::Trouble("TargetUnreachable", text)
    }

    fn failed(&mut self, error: &TargetError) -> Step {
        self.observed = TargetState::Unknown;
        Step::Trouble("TargetUnreachable", format!("target {}: {error}", self.name))
    }
}

fn state(sight: &Sight, active: i32, standby: i32) -> TargetState {
    match sight {
        Sight::Missing => TargetState::Standby,
        Sight::Here { wanted, .. } if *wanted == active => TargetState::Active,
        Sight::Here { wanted, counted, .. } if *wanted <= standby && *counted <= standby => {
            TargetState::Standby
        }
        Sight::Here { .. } => TargetState::Changing,
    }
}
