//! Tests the action Lease with leader elections of client-go: two clusters, each with controllers of two
//! versions (`tests/client-go`) and an unmodified kube-scheduler. Their records must never show two leaders
//! at once.

#[path = "client_go/candidate.rs"]
mod candidate;
#[path = "client_go/moves.rs"]
mod moves;
#[path = "client_go/report.rs"]
mod report;
#[path = "client_go/side.rs"]
mod side;

use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;
use redlock_testkit::RedisServer;
use tempfile::TempDir;

use crate::fixture::number;
use crate::world::World;
use moves::Move;
use report::{Report, overlaps};
use side::{Election, Pace, Side, fenced};

/// The longest overlap without the policy: a candidate that takes the Lease while the operator should hold it leads until
/// its renew deadline.
const OVERLAP: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(28)];

/// Two clusters, of which one holds both locks.
struct Pair {
    sides: [Side; 2],
    active: usize,
    /// The time at which the standby first stood by. Before that, each cluster had a leader.
    since: [BootInstant; 2],
    pods: usize,
    report: Report,
    folder: TempDir,
}

impl Pair {
    async fn new(pace: Pace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = tokio::join!(World::small(3), World::small(0));
        let servers: Vec<u16> = first.masters.iter().map(RedisServer::port).collect();
        let sides = [
            Side::new("eu", first, &servers, pace, folder.path()).await,
            Side::new("us", second, &servers, pace, folder.path()).await,
        ];
        // Before the Leases are targets, each cluster has its own leaders.
        for side in &sides {
            for election in Election::ALL {
                side.leads_after(election, BootInstant::from_nanos(0)).await;
            }
        }
        sides[0].declare("");
        sides[0].is_active().await;
        sides[1].declare("");
        sides[1].stands_by().await;
        let mut pair = Self {
            since: Election::ALL.map(|election| sides[1].last_led(election)),
            sides,
            active: 0,
            pods: 0,
            report: Report::default(),
            folder,
        };
        pair.create_pods().await;
        pair
    }

    fn standby(&self) -> &Side {
        &self.sides[1 - self.active]
    }

    /// Creates a pod in each cluster; the scheduler of the active one schedules it.
    async fn create_pods(&mut self) {
        let name = format!("work-{}", self.pods);
        self.pods += 1;
        for side in &self.sides {
            side.create_pod(&name);
        }
        self.sides[self.active].schedules().await;
    }

    /// Moves the locks to the other cluster.
    async fn move_by(&mut self, kind: Move) {
        kind.prepare(self.standby()).await;
        let waits = self.standby().unscheduled().await;
        let last = format!("work-{}", self.pods - 1);
        assert!(
            !fenced() || waits == [last],
            "the scheduler on standby scheduled a pod: {waits:?} wait"
        );
        let before = Election::ALL.map(|election| self.standby().last_led(election));
        let ordered = clock::now();
        kind.begin(&mut self.sides[self.active], self.folder.path()).await;
        let (from, to) = (&self.sides[self.active], &self.sides[1 - self.active]);
        for (election, before) in Election::ALL.into_iter().zip(before) {
            let began = to.leads_after(election, before).await;
            let gap = began.since(from.last_led(election));
            self.report.add(election, kind, gap, began.since(ordered));
        }
        to.schedules().await;
        kind.end(from);
        from.stands_by().await;
        self.active = 1 - self.active;
        self.create_pods().await;
    }

    /// Keeps the locks where they are for this long: no candidate of the other cluster leads.
    async fn stay(&self, length: Duration) {
        let tokens = self.sides[self.active].tokens().await;
        let before = Election::ALL.map(|election| self.standby().last_led(election));
        tokio::time::sleep(length).await;
        let after = Election::ALL.map(|election| self.standby().last_led(election));
        assert_eq!(after, before, "a candidate led on standby");
        assert_eq!(self.sides[self.active].tokens().await, tokens, "a lock moved");
        assert_eq!(
            self.standby().unscheduled().await.len(),
            1,
            "a pod was scheduled on standby"
        );
        println!("no candidate led on standby for {} s", length.as_secs());
    }

    /// Fails if candidates of one cluster, or of both, led at once. Without the policy, a short overlap is
    /// allowed.
    fn judge(self) {
        for (index, election) in Election::ALL.into_iter().enumerate() {
            let found = overlaps(&self.sides, election, self.since[index]);
            println!("{}: {} overlaps", election.name(), found.len());
            for (length, what) in found {
                println!("{length:?}: {what}");
                assert!(!fenced(), "{what} led at the same time");
                assert!(
                    length < OVERLAP[index],
                    "{what} led at the same time for {length:?}"
                );
            }
        }
        print!("{}", self.report);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_of_two_clusters_never_lead_at_the_same_time() {
    let mut pair = Pair::new(Pace::Short).await;
    for kind in [Move::HandOver, Move::Cut] {
        pair.move_by(kind).await;
    }
    pair.judge();
}

/// Moves the locks `REDLOCK_MOVES` times. With `REDLOCK_UNFENCED`, the policy of the chart is not installed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "40 minutes; `make soak-leases` runs it"]
async fn soak_moves() {
    let mut pair = Pair::new(Pace::Usual).await;
    for index in 0..number("REDLOCK_MOVES", 24) {
        pair.move_by(Move::ALL[index % Move::ALL.len()]).await;
    }
    pair.judge();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; `make soak-leases` runs it"]
async fn soak_standby() {
    let pair = Pair::new(Pace::Usual).await;
    let seconds = number("REDLOCK_STANDBY_SECONDS", 600);
    pair.stay(Duration::from_secs(seconds)).await;
    pair.judge();
}
