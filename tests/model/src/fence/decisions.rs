//! Calls the decisions of `redlock-core` as the program does, and converts between its types and the small
//! numbers of the model.

use std::{cell::RefCell, collections::HashMap, sync::LazyLock, time::Duration};

use redlock_core::{
    BootInstant, ClusterId, DeclaredDelay, FencingToken, HolderIdentity, LeaseValue, Marks, Nonce, Obstacle,
    QuorumSize,
    fence::{
        FenceMark, FencedLease, Finding, Input, Left, Lineage, MarkRegister, Observation, Presence, Reading,
        Record, Refusal, Removal, Run, State as RecordState, Stored, Succession, Watch, own_reservation,
    },
    planted::Plant,
};

use super::{
    bounds::{Bug, LONGEST},
    state::{Cluster, Lease, MASTERS, Mark, NO_LEASE, Pod, PodState, Reserved, SPLIT, Stop},
};

/// One tick. The constants of the program are multiples of it, except the 500 ms and 1 % before which a pod is
/// frozen.
pub(super) const TICK: Duration = Duration::from_secs(5);
/// The current time, far from zero like a boot time.
const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000_000_000);

static A: LazyLock<ClusterId> = LazyLock::new(|| ClusterId::new("a", "uid-a").unwrap());
static B: LazyLock<ClusterId> = LazyLock::new(|| ClusterId::new("b", "uid-b").unwrap());

fn id(cluster: Cluster) -> &'static ClusterId {
    match cluster {
        Cluster::A => &A,
        Cluster::B => &B,
    }
}

fn span(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

fn token(token: u8) -> FencingToken {
    FencingToken(token.into())
}

fn ticks(duration: Duration) -> u8 {
    u8::try_from(duration.as_nanos().div_ceil(TICK.as_nanos())).unwrap()
}

fn small(token: FencingToken) -> u8 {
    u8::try_from(token.0).unwrap()
}

fn nonce(lease: u8) -> Nonce {
    Nonce(u128::from(lease) + 1)
}

fn register(mark: Mark) -> MarkRegister {
    match mark.token {
        0 => MarkRegister::Never,
        _ if mark.first == SPLIT => MarkRegister::Split(token(mark.token)),
        _ => MarkRegister::Marked(
            FenceMark::new(
                token(mark.token),
                token(mark.first),
                id(mark.cluster),
                nonce(mark.lease),
            )
            .unwrap(),
        ),
    }
}

/// Merges two marks like a seal.
pub(super) fn merged(one: Mark, other: Mark) -> Mark {
    match register(one).merged(register(other)) {
        MarkRegister::Never => Mark::default(),
        MarkRegister::Split(token) => Mark {
            token: small(token),
            first: SPLIT,
            ..Mark::default()
        },
        MarkRegister::Marked(mark) if register(one) == MarkRegister::Marked(mark.clone()) => one,
        MarkRegister::Marked(_) => other,
    }
}

/// Returns the succession that the grants of a win show.
pub(super) fn succession(cluster: Cluster, marks: &[Mark], held: u8, won: u8) -> Succession {
    let registers: Vec<MarkRegister> = marks.iter().copied().map(register).collect();
    FencedLease::new(id(cluster).clone()).win(&registers, held.into(), token(won), NOW + span(LONGEST))
}

/// Returns the keys that the end of this lease may remove.
pub(super) fn removal(lease: &Lease, bug: Bug) -> Removal {
    let fence = FencedLease::new(id(lease.cluster()).clone());
    fence.win(&[], 0, token(lease.token), NOW);
    if lease.marked && bug != Bug::MarkForgotten {
        assert!(fence.send(token(lease.token), nonce(0), Duration::ZERO));
    }
    if lease.stop != Stop::Runs {
        fence.record_closed();
    }
    if lease.stop == Stop::Confirmed {
        fence.record_gone();
        fence.record_confirmed();
    }
    match fence.removal() {
        Removal::Nothing if bug == Bug::ReleasedEarly => Removal::All,
        removal => removal,
    }
}

/// Returns the time for which another cluster, or a sibling, waits after this win.
pub(super) fn delay(held: u8, clean: u8, delay: (u8, u8), planned: u8, bug: Bug) -> u8 {
    let milliseconds = u64::try_from(span(delay.1).as_millis()).unwrap();
    let token = u64::from(delay.0);
    let marks = Marks {
        held: held.into(),
        clean: clean.into(),
        delay: DeclaredDelay { token, milliseconds },
    };
    match marks.declared_delay() {
        _ if !marks.ended_uncleanly() => 0,
        None if bug == Bug::MissingDelay => 1,
        _ => ticks(marks.takeover_delay(None, span(planned)).length),
    }
}

/// Returns the time for which a renewal keeps the lock for its own cluster.
pub(super) fn kept(lease: u8, longest: u8) -> u8 {
    ticks(own_reservation(span(lease), span(longest)))
}

/// The values that one master shows the agent; `None` if the master does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shown {
    pub(super) lease: u8,
    pub(super) of: Cluster,
    pub(super) lease_left: u8,
    pub(super) reserved: Reserved,
    pub(super) reserved_left: u8,
    pub(super) held: u8,
    pub(super) mark: Mark,
    pub(super) closed: u8,
}

fn reading(shown: Shown) -> Reading {
    let left = |left: u8| Left::For(span(left));
    let lease = (shown.lease != NO_LEASE).then(|| {
        let value = LeaseValue {
            cluster: id(shown.of).clone(),
            identity: HolderIdentity::parse("holder").unwrap(),
            nonce: nonce(shown.lease),
            grant: 1,
        };
        (Obstacle::Lease(value), left(shown.lease_left))
    });
    let reservation = match shown.reserved {
        Reserved::Free => None,
        Reserved::For(cluster) => Some(id(cluster).to_string()),
        Reserved::ForNone => Some("nobody".to_owned()),
    };
    Reading {
        time: 0,
        received: NOW,
        lease,
        reservation: reservation.map(|text| (text, left(shown.reserved_left))),
        held: shown.held.into(),
        mark: register(shown.mark),
        delay: DeclaredDelay::default(),
        closed: token(shown.closed),
    }
}

type Round = ([Option<Shown>; MASTERS], u8);

thread_local! {
    /// The rounds repeat in millions of states.
    static ROUNDS: RefCell<HashMap<Round, Finding>> = RefCell::default();
}

/// Returns the finding of one round for the agent of A, and the greatest token that the agent then follows.
pub(super) fn finding(masters: [Option<Shown>; MASTERS], permitted: u8) -> (Finding, u8) {
    let compute = || {
        let mut observation = Observation::new(QuorumSize::new(MASTERS).unwrap(), NOW);
        for (master, shown) in masters.iter().enumerate() {
            if let Some(shown) = shown {
                observation.record(master, reading(*shown));
            }
        }
        Watch::permitted(A.clone(), token(permitted)).on_round(&observation, false, NOW)
    };
    let finding =
        ROUNDS.with_borrow_mut(|rounds| rounds.entry((masters, permitted)).or_insert_with(compute).clone());
    let permitted = match &finding {
        Finding::Permit(permit) => small(permit.token),
        _ => permitted,
    };
    (finding, permitted)
}

/// An event of the pod.
pub(super) enum Happens {
    Timer,
    Round(Finding),
    Empty,
    /// The agent was restarted, and reads its table.
    Restart,
}

/// Returns the pod after the event. The record decides, and the guardian acknowledges at once.
pub(super) fn pod(pod: Pod, happens: Happens, bug: Bug) -> Pod {
    let Some(state) = record(pod.state) else {
        return pod;
    };
    let mut record = match (happens, &state) {
        (Happens::Restart, RecordState::Running(run)) => Record::restored(Stored::Run(*run), NOW),
        (Happens::Restart, _) => return pod,
        (happens, _) => {
            let mut record = Record::in_state(state);
            record.plant(planted(bug));
            let input = match happens {
                Happens::Round(finding) => Input::Round(finding),
                Happens::Empty => Input::Cgroup {
                    populated: false,
                    frozen: true,
                },
                Happens::Timer | Happens::Restart => Input::Timer,
            };
            let _ = record.handle(input, NOW);
            record
        }
    };
    if matches!(record.state(), RecordState::Confirming { .. }) {
        let presence = if pod.forced {
            Presence::Gone
        } else {
            Presence::Exists
        };
        let _ = record.handle(Input::Pod { presence, asked: NOW }, NOW);
    }
    if matches!(record.state(), RecordState::Storing { .. }) {
        let _ = record.handle(Input::Stored, NOW);
    }
    let after = of_record(record.state());
    match (pod.state, after) {
        // Its containers are dead, and without an object the kubelet starts none.
        (_, PodState::Killed { .. }) if pod.forced => Pod::default(),
        // The containers that the kubelet starts again have no history.
        (_, PodState::Killed { .. }) => Pod {
            state: after,
            outdated: false,
            ..pod
        },
        _ => Pod { state: after, ..pod },
    }
}

fn planted(bug: Bug) -> Plant {
    match bug {
        Bug::ContraryIgnored => Plant::ContraryIgnored,
        Bug::ThawOnOtherFirst => Plant::ThawOnOtherFirst,
        Bug::ClosedIgnored => Plant::ClosedIgnored,
        _ => Plant::Nothing,
    }
}

fn record(state: PodState) -> Option<RecordState> {
    let lineage = |first: u8, of: u8| Lineage {
        first: token(first),
        token: token(of),
    };
    Some(match state {
        PodState::Absent => return None,
        PodState::Waiting => RecordState::Waiting {
            called: NOW,
            refusal: Refusal::NoRound,
        },
        PodState::Running { first, token, until } => RecordState::Running(Run {
            lineage: lineage(first, token),
            until: NOW + span(until) - TICK / 10,
        }),
        PodState::Frozen { first, token, since } => RecordState::Frozen {
            lineage: Some(lineage(first, token)),
            since: NOW - span(since),
            repeat_at: NOW + TICK,
        },
        PodState::Killed { empty } => RecordState::Killed {
            since: NOW,
            repeat_at: NOW + TICK,
            populated: Some(!empty),
        },
    })
}

fn of_record(state: &RecordState) -> PodState {
    match state {
        RecordState::Waiting { .. } | RecordState::Confirming { .. } | RecordState::Storing { .. } => {
            PodState::Waiting
        }
        RecordState::Refused => PodState::Absent,
        RecordState::Released(_) => unreachable!("no administrator takes part"),
        RecordState::Running(Run { lineage, until }) => PodState::Running {
            first: small(lineage.first),
            token: small(lineage.token),
            until: ticks(until.since(NOW)),
        },
        RecordState::Frozen { lineage, since, .. } => {
            let lineage = lineage.unwrap();
            PodState::Frozen {
                first: small(lineage.first),
                token: small(lineage.token),
                since: ticks(NOW.since(*since)),
            }
        }
        RecordState::Killed { populated, .. } => PodState::Killed {
            empty: *populated == Some(false),
        },
    }
}
