//! Defines the words of the API that are not fields: types and reasons of conditions, and reasons of events. Their
//! names are part of the API. `make generate` writes docs/api.md from these tables.

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($word:ident: $meaning:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $name {
            $(#[doc = $meaning] $word,)*
        }

        impl $name {
            /// Returns the name in the API.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)*
                }
            }

            /// Each word with its meaning.
            #[cfg(test)]
            const TABLE: &[(Self, &str)] = &[$((Self::$word, $meaning),)*];
        }
    };
}

words! {
    /// The type of a condition.
    ConditionType {
        Ready: "as declared: active or standing by, or a majority of the masters votes. Of `Ready`, `Reconciling` and `Stalled` exactly one is true",
        Reconciling: "the operator reconciles the object, or waits for another object that may still be applied",
        Stalled: "a person must change something first",
        Held: "a candidate holds the lock, in this or another cluster",
        QuorumAvailable: "a majority of the masters votes",
        Enforced: "every target is in its desired state in this cluster",
        SurgesOnRollout: "a rollout of a Deployment that is to have one replica runs two pods for a time. For \
            information: `Ready` does not depend on it. Only locks for which it was true once have it; `False` \
            after the correction",
        NodesGuarded: "`fencing: Node`: every node on which pods of the lock run has a ready pod of the node agent and \
            of the node guardian. For information: `Ready` does not depend on it. Only fenced locks have it",
        Degraded: "a master of the quorum has no vote, or does not accept its new credentials",
        Safe: "no master of the quorum is configured in a way that can lose leases",
        ReplicasReady: "no replica of the operator reports that it is not ready because of the quorum",
        SiblingsUnreachable: "ready replicas of the operator in this cluster do not answer the replica that reports. For \
            information: `Ready` does not depend on it. Only quorums for which it was true once have it",
        SingleMaster: "the quorum has one master: no lock is held while that server is away, and one server is believed. For \
            information: `Ready` does not depend on it. Only quorums with one master have it",
        Terminating: "the quorum is being deleted, and is kept until no lock uses it",
    }
}

words! {
    /// The reason of a condition.
    ConditionReason {
        Active: "this cluster holds the lock, and its targets run",
        Standby: "another cluster holds the lock or no candidate does, and the targets of this cluster are stopped",
        Activating: "the targets are being started",
        Stopping: "the targets are being stopped",
        Switching: "targets are being started or stopped",
        AsDeclared: "the targets are in their desired state",
        NoTargets: "the lock has no targets",
        NotInspected: "the targets were not read yet",
        Observed: "`enforcement: Observe`: the operator does not change the targets",
        Paused: "the annotation `redlock.dev/paused` is set: the operator does not change the targets",
        HeldHere: "a candidate of this cluster holds the lock",
        HeldElsewhere: "a candidate of another cluster holds the lock",
        NotHeld: "no candidate holds the lock",
        MajorityVotes: "a majority of the masters votes",
        NoMajority: "no majority of the masters votes, or no replica of this cluster sees one",
        WritesRefused: "a majority of the masters votes and too many of them refuse writes: no lock can be acquired",
        OperatorStopped: "the last replica of the operator in this cluster stopped",
        InvalidSpec: "the spec breaks a rule",
        ImmutableField: "a field that cannot change was changed: its former value stays in force",
        StopBudgetTooShort: "the timings leave the targets less time than they need to stop",
        DuplicateLockName: "an older lock of this cluster has the lock name",
        TargetTaken: "an older lock of this cluster switches one of the targets",
        QuorumNotFound: "there is no RedisQuorum of this name",
        QuorumNotUsable: "the RedisQuorum of the lock cannot be used",
        ClusterNameNotUnique: "another cluster uses the quorum under the same name",
        ClusterCopied: "the objects of this cluster are a copy of those of another cluster that uses the quorum",
        SecretNotFound: "the Secret with the credentials does not exist",
        SecretKeyMissing: "the Secret lacks a key",
        SecretNotReadable: "the Secret cannot be read",
        MastersShared: "another quorum of this cluster has one of the masters",
        OldMasterStillReachable: "the url of a master was changed, and the server behind the old one still answers",
        ChangingUrl: "the url of a master is being changed; the old one is in use",
        Opening: "the quorum is being opened",
        EnforcementConflict: "another writer declares another state of a target, or repeatedly reverts the changes \
            of the lock",
        TargetNotFound: "a served kind has no such object",
        KindUnknown: "no version of the kind of a target is served: whether it runs is unknown",
        KindClusterScoped: "objects of the kind of a target belong to no namespace: a lock switches objects of its own namespace only",
        Forbidden: "a permission is missing: whether the target runs is unknown",
        NoScaleSubresource: "action Scale of a kind without the subresource `scale`",
        SelectorInvalid: "a selector cannot be read",
        TargetNotSafe: "a target may run without the lock: its spec lets it, a controller keeps its pods although it was deleted, or the API server did not store a field as the operator wrote it; or a stop would delete its volumes",
        NotFenced: "`fencing: Node`: the pod template of a target does not mount the volume of the driver fencing.redlock.dev for this lock, or has a runtime class that is not allowed: the target is not started",
        NoReadyPod: "no pod of the selector is ready",
        HolderNotSelected: "the selector does not match the pod of the agent that holds the lock",
        TargetUnreachable: "the API server refused a request, or did not answer in time",
        RequestDenied: "a policy, a webhook or a quota of the cluster denied a request",
        StopLate: "pods have not ended within the stop time, or the controller of the object has not confirmed the stop",
        NotMarked: "a majority of the masters did not record that targets start",
        SurgingStrategy: "the strategy of a Deployment starts the new pod beside the old one",
        NoSurge: "a rollout ends the old pod before it creates the new one",
        Guarded: "a node agent and a node guardian are ready on every node on which pods of the lock run",
        NotGuarded: "the node agent or the node guardian is not ready on a node on which pods of the lock run",
        GuardsNotFollowed: "the pods of the node agents and the node guardians are not known",
        AllVote: "every master votes",
        Fit: "no master is configured in a way that can lose leases",
        Unfit: "a master is configured in a way that can lose leases",
        OneMaster: "`spec.masters` has one server",
        InUse: "locks of this or another cluster use the quorum",
        NoneReported: "no replica reports that it is not ready",
        ReplicaNotReady: "a replica reports that it is not ready",
        SiblingsSilent: "ready replicas do not answer",
        SiblingsAnswer: "every ready replica answers",
        Connecting: "a master is not connected yet",
        Unreachable: "no connection to a master",
        Silent: "a master does not answer in time",
        CredentialsRefused: "a master refuses the credentials, or a command",
        NotRenewed: "a master does not accept the new credentials or certificates; the connection with the old ones is kept",
        Sealing: "a master is in quarantine until it may vote",
        SealBlocked: "a master cannot be sealed",
        ClockStep: "the clock of a master stepped",
        ServerTooOld: "the version of a master is too old",
        ServerUnsupported: "a master is a program that cannot keep leases, such as Dragonfly",
        IsReplica: "a master is a replica of another server",
        HasReplicas: "a master has replicas",
        ClusterMode: "a master is part of a Redis Cluster",
        Retired: "a master was retired",
        SameServer: "two masters are the same server",
        OtherFingerprint: "a master has the seal of a quorum with other masters",
        OtherQuorum: "a master belongs to another quorum",
        CounterAhead: "the counter of a master is not plausible by the counters and clocks of the others",
        EvictionPolicy: "a master may evict keys",
        Evicted: "a master has evicted keys",
    }
}

words! {
    /// The reason of an event.
    EventReason {
        Acquired: "a candidate acquired the lock",
        TakenOver: "a candidate acquired the lock after a lease that ran out",
        Released: "the holder released the lock, passed it on or stepped down",
        Abandoned: "the holder gave the lock up without a release, since its targets may run: its lease is left to expire",
        LeaseLost: "the holder lost its lease",
        StartPostponed: "the last lease did not end cleanly: the targets start once those of the last holder must have stopped",
        TargetActivated: "a target runs",
        TargetFoundRunning: "a target runs and this cluster does not hold the lock",
        TargetStopped: "a target is stopped",
        EnforcementConflict: "another writer declares another state of a target, or repeatedly reverts the changes \
            of the lock",
        StartedAgain: "another writer stopped a target while this cluster holds the lock: the operator started it \
            again",
        StoppedAgain: "another writer started a target while this cluster stands by: the operator stopped it again",
        EndNotConfirmed: "`fencing: Node`: it is not known whether all pods of a stopped lock have ended: its lease is left to expire, and is not passed on",
        StopTooShort: "the grace period of the pod template of a target is longer than its stop time",
        DepartureBlocked: "the lock is to be given up, and its targets cannot be stopped, or redlock.dev/paused forbids it: lease and finalizer stay",
        Observed: "`enforcement: Observe`: the action that the operator would take",
        TargetsLeft: "a lock was given up and its targets may run: they could not be stopped in time, or this version cannot read them",
        Unready: "the targets were unready for too long: they are stopped, and the lock is passed on",
        FailedOver: "the lock was passed on because targets did not become ready",
        FailoverFailed: "the targets were not stopped in time, and were started again",
        SurgesOnRollout: "a rollout of a Deployment that is to have one replica runs two pods for a time",
        ReplicasLeft: "the replicas of a target are left to another manager",
        TargetNotSafe: "a target may run without the lock: its spec lets it, a controller keeps its pods although it was deleted, or the API server did not store a field as the operator wrote it",
        PodLabelled: "a pod was labelled",
        LabelRemoved: "a label that another writer set was removed",
        JobAbandoned: "a Job was stopped in the middle, and is never resumed",
        TargetEnded: "a Job has ended, so it is not started",
        NoStartingDeadline: "a CronJob without `startingDeadlineSeconds` starts a missed run when it is resumed",
        ManualJobWaits: "a Job that was created by hand waits until this cluster holds the lock",
        JobStartedByHand: "a Job was resumed although it does not own its slot: the operator suspended it again",
        TimeZoneMissing: "a CronJob has no `timeZone`: its slots may differ between clusters",
        TargetSuspended: "a CronJob is itself suspended: no Job is scheduled",
        SlotRunsElsewhere: "another cluster runs the slot",
        SlotPassed: "another cluster claimed a later slot first",
        SlotNotRecorded: "new masters do not record claims of the slot",
        SlotLost: "no Job can claim the slot any more",
        SlotTooOld: "the slot is older than `maxSlotAgeSeconds`",
        SlotUnreadable: "the slot of a Job cannot be read",
        QuorumLost: "no majority of the masters votes",
        WritesRefused: "too many masters refuse writes: no lock can be acquired",
        QuorumRestored: "a majority of the masters votes again",
        MasterQuarantined: "a master answers and may not vote yet",
        TokenImplausible: "the fencing token of a status is greater than every counter of the masters: it is overwritten",
        ReplicaNotReady: "a replica of the operator does not become ready",
        Fenced: "a node froze the processes of a pod of a fenced lock, since the masters no longer guarantee the lock to the cluster",
        NotFrozen: "the permit of a pod of a fenced lock has ended, and its node could not freeze it or does not know whether its processes run",
        NotFenced: "the containers of a pod of a fenced lock run outside the cgroup of the pod, where no freeze reaches them",
        Thawed: "a node thawed a pod of a fenced lock: the masters guarantee the lock to the cluster again",
        FencedKilled: "a node killed the processes of a frozen pod: another cluster may have held the lock meanwhile, or the pod was frozen for too long",
        FenceReleased: "an administrator let a frozen pod run without a permit, by `redlock fence release`",
    }
}

impl EventReason {
    /// Returns the action of the event, in the words of the events API.
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Acquired | Self::TakenOver => "Acquire",
            Self::Released | Self::Abandoned => "Release",
            Self::LeaseLost => "Renew",
            Self::QuorumLost | Self::WritesRefused | Self::QuorumRestored | Self::MasterQuarantined => {
                "Watch"
            }
            Self::TokenImplausible => "WriteStatus",
            Self::Fenced | Self::NotFrozen | Self::NotFenced => "Freeze",
            Self::Thawed => "Thaw",
            Self::FencedKilled => "Kill",
            Self::FenceReleased => "Thaw",
            _ => "Switch",
        }
    }

    /// Whether the event is a warning, which a person should act on.
    pub(crate) const fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::Acquired
                | Self::Released
                | Self::TakenOver
                | Self::QuorumRestored
                | Self::StartPostponed
                | Self::TargetActivated
                | Self::TargetStopped
                | Self::Observed
                | Self::ReplicasLeft
                | Self::PodLabelled
                | Self::TargetEnded
                | Self::ManualJobWaits
                | Self::SlotRunsElsewhere
                | Self::SlotPassed
                | Self::Thawed
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write, path::Path};

    use super::*;

    fn table(columns: &str, rows: impl Iterator<Item = String>) -> String {
        let rule = "|---".repeat(columns.matches('|').count() - 1);
        rows.fold(format!("{columns}\n{rule}|\n"), |mut text, row| {
            let _ = writeln!(text, "{row}");
            text
        })
    }

    #[test]
    fn the_reference_of_conditions_and_events_is_up_to_date() {
        let types = ConditionType::TABLE.iter();
        let reasons = ConditionReason::TABLE.iter();
        let events = EventReason::TABLE.iter().map(|(reason, meaning)| {
            let kind = if reason.is_warning() { "Warning" } else { "Normal" };
            format!("| `{}` | {kind} | {meaning} |", reason.name())
        });
        let wanted = [
            table(
                "| condition | is true when |",
                types.map(|(kind, meaning)| format!("| `{}` | {meaning} |", kind.name())),
            ),
            table(
                "| reason of a condition | means |",
                reasons.map(|(reason, meaning)| format!("| `{}` | {meaning} |", reason.name())),
            ),
            table("| reason of an event | type | means |", events),
        ]
        .join("\n");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let begin = "<!-- conditions and events: written by `make generate` -->\n";
        let (before, rest) = page.split_once(begin).expect("a place for them");
        let (_, after) = rest
            .split_once("<!-- end of conditions and events -->")
            .expect("its end");
        let new = format!("{before}{begin}\n{wanted}\n<!-- end of conditions and events -->{after}");
        if std::env::var_os("REDLOCK_REGENERATE").is_some() {
            std::fs::write(&path, &new).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(found == new, "docs/api.md is out of date: run `make generate`");
    }
}
