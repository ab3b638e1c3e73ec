//! LabelPods: one pod of a selector carries the label that a Service selects, and with it the fencing token.
//!
//! The operator confirms that one pod has lost the label before another pod gets it: between the two, no pod
//! has the label, and within a cluster never more than one pod has it. Taking the label needs no authority;
//! giving it does.

mod choice;
mod pods;
mod selections;
mod snapshot;
mod verdict;
mod watched;

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, future::join_all};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};

use super::{Changes, EventReason, Found, StartPermit, Step, StopPermit, TargetContext, TargetError};
use crate::{api::lock_status::TargetState, clock, lease::BootInstant};
use choice::{Choice, Wanted, choose};
use pods::{Pods, Write};
pub(super) use selections::Selections;
use snapshot::{PodSnapshot, ROLE, Setter};
use verdict::template;
pub(super) use watched::NamespacePods;
use watched::Watched;

/// The maximum number of reads in one step: a pod may change between a read and a write, such as by its
/// kubelet.
const TRIES: usize = 8;
/// The maximum age of a list, which is valid until a change is seen: a watch may miss a change.
const FRESH: Duration = Duration::from_secs(55);
/// The time for which this replica leaves a label alone that was given again after this replica took it, or
/// that was given under a later lease than this replica has seen. It applies only while this replica does not
/// see the holder of the lock: a sibling sees more.
const OVERRULED: Duration = Duration::from_secs(60);

pub(super) struct LabelPods {
    context: TargetContext,
    pods: Pods,
    /// The pods as the watch shows them.
    watched: Watched,
    /// The pods of the last list.
    seen: Option<(BootInstant, Vec<PodSnapshot>)>,
    /// The pod, in the version that was read, for which a write of the label was not answered. The write may
    /// still apply while the pod has that version.
    unanswered: Option<PodSnapshot>,
    /// The token of a label that this replica leaves to a sibling with a better view, and since when.
    overruled: Option<(u64, BootInstant)>,
    /// The UID of the pod that got the label last, and the token under which it did.
    given: Option<(String, u64)>,
    /// The UIDs of pods that lost the label in steps without a lease, since the last step under a lease.
    taken: BTreeSet<String>,
    /// A change of the label by another writer since the last step.
    contest: Option<String>,
}

/// The reason for a step.
#[derive(Clone, Copy)]
enum Cause<'a> {
    /// A lease, own or observed.
    Lease(&'a StartPermit),
    /// This replica ran the object, or has an order to stop it.
    Ordered(&'a StopPermit),
    /// This replica sees no holder of the lock in this cluster.
    Unheld(&'a StopPermit),
}

impl LabelPods {
    pub(super) fn new(context: TargetContext, selector: &LabelSelector) -> Self {
        let (pods, watched) = Pods::new(&context, selector);
        // A lock that only observes labels no pod.
        if context.switches {
            let selections = &context.shared.selections;
            selections.add(&context.namespace, &pods.by, &watched);
        }
        Self {
            pods,
            context,
            watched,
            seen: None,
            unanswered: None,
            overruled: None,
            given: None,
            taken: BTreeSet::new(),
            contest: None,
        }
    }

    /// Returns the pods, and whether this call listed them. The pods of the watch are enough to see that no change is
    /// needed; a confirmed stop needs a list.
    async fn read(&mut self, confirms: bool) -> Result<(bool, Vec<PodSnapshot>), TargetError> {
        let now = clock::now();
        let shown = self.watched.shown();
        // A watch that went silent shows no change.
        if self.unanswered.is_some() || confirms || shown.pods.is_none() {
            self.seen = None;
        }
        if let Some((at, pods)) = &self.seen
            && now.since(*at) < FRESH
        {
            if !shown.changed {
                return Ok((false, pods.clone()));
            }
            // The watch of the selector does not show pods that only have the label.
            let others = pods.iter().filter(|pod| !pod.selected).cloned();
            let all = shown.pods.into_iter().flatten().chain(others);
            return Ok((false, all.collect()));
        }
        // The list may lack changes that are made after this point.
        self.watched.settle();
        let pods = self.pods.read().await?;
        self.seen = Some((now, pods.clone()));
        Ok((true, pods))
    }

    /// Changes labels until no change is needed.
    async fn enforce(&mut self, wanted: &Wanted, cause: Cause<'_>) -> Result<Step, TargetError> {
        if matches!(cause, Cause::Lease(_)) {
            // The operator sets the label from this point.
            self.taken.clear();
        }
        for _ in 0..TRIES {
            let (fresh, pods) = self.read(matches!(cause, Cause::Ordered(_))).await?;
            if self.settle(&pods).await? == Write::Late {
                continue;
            }
            let mut choice = choose(&pods, wanted, &self.pods.by, now());
            let before = choice.take.len();
            choice
                .take
                .retain(|pod| is_sure(cause) || !self.is_overruled(pod));
            if choice.take.len() < before {
                choice.give = None;
                if choice.take.is_empty() {
                    return Ok(Step::Working(TargetState::Active));
                }
            }
            if choice.take.is_empty() && !gives(&choice, cause) {
                return Ok(match self.contest.take() {
                    Some(what) => Step::Contested(what),
                    None => self.verdict(&pods, &choice, wanted, cause),
                });
            }
            self.seen = None;
            if fresh && !self.write(choice, cause).await? {
                break;
            }
        }
        Ok(Step::Working(TargetState::Changing))
    }

    /// Prevents an unanswered write from giving the label later: the write cannot apply to another version of
    /// its pod.
    async fn settle(&mut self, pods: &[PodSnapshot]) -> Result<Write, TargetError> {
        let Some(waiting) = &self.unanswered else {
            return Ok(Write::Done);
        };
        let is_it = |pod: &&PodSnapshot| (&pod.uid, &pod.version) == (&waiting.uid, &waiting.version);
        if let Some(pod) = pods.iter().find(is_it) {
            self.pods.touch(pod).await?;
            return Ok(Write::Late);
        }
        self.unanswered = None;
        Ok(Write::Done)
    }

    /// Makes the changes. Returns false if the authority is gone.
    async fn write(&mut self, choice: Choice, cause: Cause<'_>) -> Result<bool, TargetError> {
        let again = choice.take.iter().any(|pod| self.taken.contains(&pod.uid));
        let holds = match cause {
            Cause::Lease(permit) => permit.holds(),
            Cause::Ordered(permit) | Cause::Unheld(permit) => permit.holds(Found::of(again)),
        };
        if !holds {
            // A label that exists now may belong to a later holder.
            return Ok(false);
        }
        let takes = choice.take.iter().map(|pod| self.pods.take(pod));
        let mut late = false;
        for (pod, taken) in choice.take.iter().zip(join_all(takes).await) {
            match taken? {
                Write::Done => self.on_taken(pod, cause),
                Write::Late => late = true,
            }
        }
        if late {
            return Ok(true);
        }
        let (Some(pod), Cause::Lease(permit)) = (choice.keep.or(choice.give), cause) else {
            return Ok(true);
        };
        if !permit.holds() {
            return Ok(false);
        }
        self.unanswered = Some(pod.clone());
        let given = self.pods.give(&pod, permit.token()).await;
        if given.as_ref().map_or_else(TargetError::is_refusal, |_| true) {
            self.unanswered = None;
        }
        if given? == Write::Done && !pod.labelled {
            let (target, token) = (&self.context.target, permit.token().0);
            let this = Some((pod.uid.clone(), token));
            if self.given == this {
                self.contest = Some(format!("pod {} lost the label to another writer", pod.name));
                return Ok(true);
            }
            self.given = this;
            let text = format!(
                "target {target}: pod {} is the active one, token {token}",
                pod.name
            );
            self.context.emit(EventReason::PodLabelled, text);
        }
        Ok(true)
    }

    fn on_taken(&mut self, pod: &PodSnapshot, cause: Cause<'_>) {
        self.given.take_if(|(given, _)| *given == pod.uid);
        if !matches!(cause, Cause::Lease(_)) && !self.taken.insert(pod.uid.clone()) {
            self.contest = Some(format!("pod {} got the label from another writer", pod.name));
        }
        if let Some(token) = pod.token
            && !is_sure(cause)
        {
            // If the label is given again, a sibling gave it.
            self.overruled = Some((token, clock::now()));
        }
        let target = &self.context.target;
        match &pod.setter {
            Setter::Maker(manager) => {
                let text = template(&self.pods.called(), manager);
                self.context
                    .emit(EventReason::TargetNotSafe, format!("target {target}: {text}"));
            }
            Setter::Other(manager) if pod.by.is_none() => {
                let (pod, role) = (&pod.name, ROLE);
                let text = format!(
                    "target {target}: pod {pod} got label {role} from {manager:?}: the operator removed it"
                );
                self.context.emit(EventReason::LabelRemoved, text);
            }
            Setter::Own | Setter::Other(_) => {}
        }
    }

    /// Reports whether a sibling that sees more gave the label: under a later lease than this replica has
    /// seen, or again after this replica took it.
    fn is_overruled(&mut self, pod: &PodSnapshot) -> bool {
        let Some(token) = pod.token.filter(|_| pod.labelled) else {
            return false;
        };
        if self.overruled.is_none_or(|(known, _)| known != token) {
            let standing = self.context.elector.watch(&self.context.lock);
            let seen = standing.and_then(|standing| standing.borrow().last_token());
            // A replica that has just started has seen no lease, and takes the label if no holder is known.
            if seen.is_none_or(|seen| token <= seen.0) {
                return false;
            }
            self.overruled = Some((token, clock::now()));
        }
        self.overruled
            .is_some_and(|(_, at)| clock::now().since(at) < OVERRULED)
    }

    pub(super) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let (_, pods) = self.read(false).await?;
        let mut labelled = choose(&pods, &Wanted::NoPod, &self.pods.by, now())
            .take
            .into_iter();
        Ok(match (labelled.next(), labelled.next()) {
            (None, _) => TargetState::Standby,
            (Some(one), None) if one.labelled && one.selected => TargetState::Active,
            _ => TargetState::Changing,
        })
    }

    fn wanted(&self, permit: &StartPermit) -> Wanted {
        let Some(holder) = permit.holder() else {
            return Wanted::Ready;
        };
        // An agent identifies itself by the namespace, the name and the UID of its pod.
        let mut parts = holder.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some(uid), None) if namespace == self.context.namespace => {
                Wanted::Holder {
                    name: name.to_owned(),
                    uid: uid.to_owned(),
                }
            }
            // The holder is not a pod of this namespace, so no pod gets the label.
            _ => Wanted::Holder {
                name: String::new(),
                uid: String::new(),
            },
        }
    }
}

/// Reports whether the cause is certain: a lease of the operator, or an order to stop the pods that this replica ran. A
/// holder that this replica does not see may be hidden by a fault of its connections.
fn is_sure(cause: Cause<'_>) -> bool {
    match cause {
        Cause::Lease(permit) => permit.holder().is_none(),
        Cause::Ordered(_) => true,
        Cause::Unheld(_) => false,
    }
}

/// Returns the present time in whole seconds, as the API server writes times.
fn now() -> Timestamp {
    let seconds = i64::try_from(clock::unix_time().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Reports whether there is a label to give, or a token to update.
fn gives(choice: &Choice, cause: Cause<'_>) -> bool {
    let Cause::Lease(permit) = cause else { return false };
    let token = permit.token().0;
    let old = |keep: &PodSnapshot| match permit.holder() {
        None => keep.token != Some(token),
        // An observer that does not see all masters may see a smaller token than another observer.
        Some(_) => keep.token.is_none_or(|known| known < token),
    };
    choice.give.is_some()
        || choice
            .keep
            .as_ref()
            .is_some_and(|keep| old(keep) || keep.by.is_none())
}

impl LabelPods {
    pub(super) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        let wanted = self.wanted(permit);
        self.enforce(&wanted, Cause::Lease(permit)).await
    }

    /// Removes the label from all pods. Done when no pod has it.
    pub(super) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        let cause = match by {
            Some(_) => Cause::Ordered(permit),
            None => Cause::Unheld(permit),
        };
        self.enforce(&Wanted::NoPod, cause).await
    }

    pub(super) fn changes(&self) -> Changes {
        self.watched.changes().boxed()
    }
}
