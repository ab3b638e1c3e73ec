//! Shows an administrator the pods that wait for their start.

use std::{collections::BTreeMap, time::Duration};

use redlock_client::clock;
use redlock_core::{BootInstant, fence::Refusal};

use super::Owner;
use crate::{
    agent::{explanations::explained, pod::Pod},
    guardian::chain,
    table::Waiting,
};

/// The time for which a refused pod is shown. The kubelet calls again within 122 s for a pod that it still
/// starts.
const REFUSED_FOR: Duration = Duration::from_secs(240);

/// The pods that wait, and the refused pods, for which the kubelet calls again.
#[derive(Debug, Default)]
pub(in crate::agent) struct WaitingPods {
    /// Each pod, with the last time at which it waited.
    pods: BTreeMap<String, (Waiting, BootInstant)>,
    /// The pods that the table shows; `None` while it may show the pods of an earlier agent.
    shown: Option<BTreeMap<String, Waiting>>,
}

impl WaitingPods {
    pub(super) fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    fn note(&mut self, uid: &str, waiting: Waiting, now: BootInstant) {
        self.pods.insert(uid.to_owned(), (waiting, now));
    }

    /// Returns the pods for which the kubelet may call again.
    fn at(&mut self, now: BootInstant) -> BTreeMap<String, Waiting> {
        self.pods
            .retain(|_, (_, waited)| now.since(*waited) < REFUSED_FOR);
        let pods = self.pods.iter();
        pods.map(|(uid, (waiting, _))| (uid.clone(), waiting.clone()))
            .collect()
    }
}

impl Owner<'_> {
    /// Keeps a refused pod, whose record ends with the refusal.
    pub(super) fn note_refused(&mut self, uid: &str, refusal: &Refusal) {
        let holder = self.holder(uid);
        if let Some(pod) = self.pods.get(uid).filter(|pod| pod.is_refused()) {
            let why = explained(refusal, holder.as_deref());
            self.waiting.note(uid, waiting(pod, why), clock::now());
        }
    }

    /// Keeps a pod whose record is about to end, for `redlock fence list`.
    pub(super) fn note_waiting(&mut self, uid: &str, why: String) {
        if let Some(pod) = self.pods.get(uid) {
            self.waiting.note(uid, waiting(pod, why), clock::now());
        }
    }

    pub(super) fn show_waiting(&mut self, now: BootInstant) {
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        for uid in uids {
            let holder = self.holder(&uid);
            match self.pods.get(&uid) {
                Some(pod) if pod.stored.is_none() && !pod.is_lost() => {
                    let why = pod.why(holder.as_deref());
                    self.waiting.note(&uid, waiting(pod, why), now);
                }
                _ => self.waiting.forget(&uid),
            }
        }
        let pods = self.waiting.at(now);
        if self.waiting.shown.as_ref() != Some(&pods) {
            match self.shared.table.show_waiting(&pods) {
                Ok(()) => self.waiting.shown = Some(pods),
                Err(error) => tracing::warn!(error = %chain(&error), "the pods that wait cannot be shown"),
            }
        }
    }
}

fn waiting(pod: &Pod, why: String) -> Waiting {
    Waiting {
        pod: pod.name.clone(),
        declared: pod.declared.clone(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PodName, tests::at};

    #[test]
    fn a_refused_pod_is_shown_until_the_kubelet_no_longer_calls() {
        let waiting = Waiting {
            pod: PodName {
                uid: "uid-1".into(),
                namespace: "team".into(),
                name: "report-0".into(),
            },
            declared: "team/report".into(),
            why: "the pod was deleted".into(),
        };
        let mut pods = WaitingPods::default();
        pods.note("uid-1", waiting.clone(), at(1_000));
        let shown = BTreeMap::from([("uid-1".to_owned(), waiting)]);
        assert_eq!(pods.at(at(240_999)), shown);
        assert_eq!(pods.at(at(241_000)), BTreeMap::new());
        assert!(pods.pods.is_empty());
    }
}
