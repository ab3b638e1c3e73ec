//! The fenced pods of a node as text, and the risks of a release by hand.

use std::fmt::Write;

use redlock_node::{
    listing::{Listing, PodRow},
    release::{By, Guardian, Plan, Released},
};

use super::text::{or_dash, table};

/// Returns a table of the pods, and a line for each guard.
#[must_use]
pub fn text(listing: &Listing) -> String {
    let header = [
        "NAMESPACE",
        "POD",
        "UID",
        "LOCK",
        "STATE",
        "PERMIT",
        "GUARDED",
        "REASON",
    ];
    let mut text = if listing.pods.is_empty() {
        "no fenced pod on this node\n".to_owned()
    } else {
        table(&header, listing.pods.iter().map(row))
    };
    text.push('\n');
    text.push_str(match listing.agent_acts {
        Some(true) => "node agent: acts\n",
        Some(false) => "node agent: none acts: no pod starts or is thawed, and the guardian freezes alone\n",
        None => "node agent: unknown: the lock file of its turn cannot be read\n",
    });
    text.push_str(&guardian(listing));
    if let Some(reason) = &listing.incomplete {
        let _ = writeln!(
            text,
            "pods that wait for their start may be missing: {reason}; with another directory of the kubelet, give --kubelet-dir"
        );
    }
    text
}

fn guardian(listing: &Listing) -> String {
    let Some(guardian) = &listing.guardian else {
        return "node guardian: has not reported since the machine booted: the agent freezes alone\n"
            .to_owned();
    };
    let mut text = format!(
        "node guardian: reported {:.1} s ago",
        guardian.reported_seconds_ago
    );
    text.push_str(if guardian.runs {
        "\n"
    } else {
        ": it does not run, and the agent freezes alone\n"
    });
    for reason in &guardian.degraded {
        let _ = writeln!(text, "node guardian: degraded: {reason}");
    }
    text
}

fn row(pod: &PodRow) -> Vec<String> {
    let lock = pod.lock.split_once('/').map_or(&*pod.lock, |(_, name)| name);
    let permit = pod
        .permit_ends_in_seconds
        .map(|seconds| format!("{seconds:.1} s"));
    vec![
        or_dash(Some(pod.namespace.clone())),
        or_dash(Some(pod.pod.clone())),
        pod.uid.clone(),
        or_dash(Some(lock.to_owned())),
        pod.state.name().to_owned(),
        or_dash(permit),
        if pod.guarded { "yes" } else { "no" }.to_owned(),
        or_dash(Some(pod.reason.clone())),
    ]
}

/// Returns the text that names the pod to be released, and the risks.
#[must_use]
pub fn risks(plan: &Plan) -> String {
    let entry = &plan.entry;
    let (namespace, name) = (&entry.pod.namespace, &entry.pod.name);
    let why = if entry.why.is_empty() {
        "its permit ended"
    } else {
        &entry.why
    };
    format!(
        "pod {namespace}/{name} (UID {}) of lock {} does not run: {why}

A release lets its processes run, although the masters do not guarantee the lock to this cluster:
- Another cluster may hold the lock, now or at any later time, and run the same work beside this pod. Make sure that it does not.
- The lock is neither acquired nor kept nor freed. A frozen pod keeps the fencing token of its last permit; a killed pod that the
  node agent releases has the token 0.
- Nothing waits for the end of this pod: another cluster can acquire the lock and start the work while the pod runs.
- The operator of this cluster stops the pod as it stops others, unless the annotation redlock.dev/paused is set on the LeaderLock.
- The release ends with the pod and with a reboot of the node. A permit ends it, too: the pod is then fenced again, and a pod of
  another lineage or one that was killed before is killed and starts afresh. The pod is killed when the masters show another
  cluster that came later.

",
        entry.pod.uid, entry.declared
    )
}

/// Returns the text of the result.
#[must_use]
pub fn released(plan: &Plan, released: Released, reason: &str) -> String {
    let (namespace, name) = (&plan.entry.pod.namespace, &plan.entry.pod.name);
    let mut text = format!("pod {namespace}/{name} is released\nreason: {reason}\n");
    text.push_str(match released.by {
        By::Agent => "the node agent carried it out, and emits the event FenceReleased\n",
        By::Command => {
            "no node agent acts on this node: this command carried it out, and no event is emitted\n"
        }
    });
    text.push_str(match released.guardian {
        Guardian::Acknowledged => "the node guardian acknowledged it\n",
        Guardian::NotAcknowledged => {
            "the node guardian has not acknowledged it and may freeze the pod again: check its log and its version\n"
        }
        Guardian::NotRunning => "no node guardian runs\n",
    });
    if !released.thawed {
        text.push_str(match released.by {
            By::Agent => "the cgroup of the pod is still frozen: check the log of the node agent\n",
            By::Command => "the cgroup of the pod is still frozen: give the command again\n",
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use redlock_node::listing::{self, PodState};

    use super::*;

    #[test]
    fn a_listing_shows_pods_and_guards() {
        let pod = PodRow {
            namespace: "team".to_owned(),
            pod: "report-0".to_owned(),
            uid: "uid-1".to_owned(),
            lock: "team/report".to_owned(),
            state: PodState::Frozen,
            permit_ends_in_seconds: Some(-3.1),
            guarded: true,
            reason: "fewer than a majority of the masters answered".to_owned(),
        };
        let mut listing = Listing {
            agent_acts: Some(false),
            guardian: Some(listing::Guardian {
                reported_seconds_ago: 12.0,
                runs: false,
                degraded: vec!["no SYS_NICE".to_owned()],
            }),
            pods: vec![
                pod.clone(),
                PodRow {
                    namespace: String::new(),
                    pod: String::new(),
                    lock: String::new(),
                    state: PodState::Waiting,
                    permit_ends_in_seconds: None,
                    guarded: false,
                    ..pod
                },
            ],
            incomplete: Some("reading /k/pods".to_owned()),
        };
        let shown = text(&listing);
        for part in [
            "team       report-0  uid-1  report  frozen   -3.1 s  yes      fewer than",
            "-          -         uid-1  -       waiting  -       no ",
            "none acts",
            "reported 12.0 s ago: it does not run",
            "degraded: no SYS_NICE",
            "may be missing: reading /k/pods; with another directory of the kubelet, give --kubelet-dir",
        ] {
            assert!(shown.contains(part), "{part} is not in:\n{shown}");
        }
        listing.pods.clear();
        (listing.agent_acts, listing.guardian) = (Some(true), None);
        let shown = text(&listing);
        for part in ["no fenced pod", "node agent: acts", "has not reported"] {
            assert!(shown.contains(part), "{part} is not in:\n{shown}");
        }
    }
}
