//! Tests docs/protocol.md, section 12.3, through the elector: a slot belongs to one job, by a majority in one round.

use std::sync::Arc;

use redlock_client::elector::{Elector, ElectorTask, Silent};
use redlock_client::lease::{Claim, Fate, Gone};
use redlock_client::masters::{Masters, Tasks};

use crate::seal::{BOUND, SLOT, register, sealed, set_register};
use redlock_testkit::masters::{Opened, identity, lock_name};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions, eventually};

const REGISTER: &str = "slot:a/b/report";

struct Claims {
    elector: Elector,
    masters: Masters,
    _task: ElectorTask,
    _tasks: Tasks,
}

async fn claims(count: usize) -> (RedisServers, Claims) {
    let (servers, opened) = sealed(count, &ServerOptions::default()).await;
    let Opened {
        masters,
        notices,
        tasks,
    } = opened;
    let (elector, task) = Elector::start(masters.clone(), notices, identity("me"), Arc::new(Silent));
    let claims = Claims {
        elector,
        masters,
        _task: task,
        _tasks: tasks,
    };
    (servers, claims)
}

impl Claims {
    async fn claim(&self, slot: u64, job: &str) -> Claim {
        self.elector.claim(&lock_name("a/b"), "report", slot, job).await
    }

    async fn fate(&self, slot: u64, job: &str) -> Fate {
        let view = self.elector.slots(&lock_name("a/b"), "report").await;
        view.unwrap().fate(slot, job)
    }

    async fn voters(&self, count: usize) {
        eventually(BOUND, &format!("{count} masters that vote"), async || {
            let seen = self.masters.voters();
            if seen == count { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

fn to(job: &str) -> Fate {
    Fate::Gone(Gone::To(job.into()))
}

async fn claimed_at(servers: &[RedisServer], slot: u64, job: &str) {
    for server in servers {
        set_register(server, REGISTER, &format!("{slot}|{job}")).await;
    }
}

#[tokio::test]
async fn a_slot_is_granted_to_one_job_and_to_it_again() {
    let (servers, claims) = claims(3).await;
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Open);
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Granted);
    assert_eq!(claims.claim(SLOT, "2@b").await, Claim::Refused);
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Granted, "the same claim");
    assert_eq!(
        claims.claim(SLOT, "1@other").await,
        Claim::Granted,
        "a renamed cluster"
    );
    assert_eq!(claims.fate(SLOT, "1@other").await, Fate::Mine);
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Mine);
    assert_eq!(claims.fate(SLOT, "2@b").await, to("1@a"));
    let text = register(&servers[0], REGISTER).await.unwrap();
    assert_eq!(text, format!("{SLOT}|1@a"));

    // The register only grows: an older slot can never be claimed again, not even by the job that had it.
    assert_eq!(claims.claim(SLOT + 1, "3@b").await, Claim::Granted);
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Refused);
    let passed = Gone::Passed {
        slot: SLOT + 1,
        job: "3@b".into(),
    };
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Gone(passed));
    // Another CronJob of the same lock has its own register.
    let lock = lock_name("a/b");
    let other = claims.elector.claim(&lock, "other", SLOT, "1@a").await;
    assert_eq!(other, Claim::Granted);
}

#[tokio::test]
async fn a_read_of_a_slot_writes_nothing() {
    let (servers, claims) = claims(3).await;
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Open);
    for server in servers.iter() {
        assert_eq!(register(server, REGISTER).await, None);
    }
}

#[tokio::test]
async fn a_minority_decides_nothing() {
    let (servers, claims) = claims(5).await;
    claimed_at(&servers[..2], SLOT, "2@b").await;
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Open);
    assert_eq!(
        claims.claim(SLOT, "1@a").await,
        Claim::Granted,
        "by the other three"
    );
    assert_eq!(claims.fate(SLOT, "2@b").await, to("1@a"));
}

#[tokio::test]
async fn votes_of_several_rounds_are_not_summed_up() {
    let (servers, claims) = claims(3).await;
    // One master grants; then it is down while another master grants.
    for index in [1, 2] {
        servers[index].pause().unwrap();
    }
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Undecided);
    servers[1].resume().unwrap();
    servers[0].pause().unwrap();
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Undecided);
    assert_eq!(claims.fate(SLOT, "2@b").await, Fate::Open);
    for index in [0, 2] {
        servers[index].resume().unwrap();
    }
    claims.voters(3).await;
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Granted);
}

#[tokio::test]
async fn a_split_claim_stays_without_a_job_after_a_master_lost_its_memory() {
    let (servers, claims) = claims(3).await;
    claimed_at(&servers[..1], SLOT, "1@a").await;
    claimed_at(&servers[1..2], SLOT, "2@b").await;
    servers[2].pause().unwrap();
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Undecided);
    assert_eq!(
        claims.fate(SLOT, "1@a").await,
        Fate::Open,
        "the third may still grant it"
    );
    servers[2].resume().unwrap();
    servers[2].restart_empty().unwrap();
    for voters in [2, 3] {
        claims.voters(voters).await;
    }
    let text = register(&servers[2], REGISTER).await.unwrap();
    assert_eq!(text, format!("{SLOT}|nobody"));
    for job in ["1@a", "2@b"] {
        assert_eq!(claims.claim(SLOT, job).await, Claim::Refused, "{job}");
        assert_eq!(claims.fate(SLOT, job).await, Fate::Gone(Gone::Lost), "{job}");
    }
    assert_eq!(claims.claim(SLOT + 1, "3@b").await, Claim::Granted);
}

#[tokio::test]
async fn a_master_without_a_seal_neither_grants_nor_shows() {
    let (servers, claims) = claims(3).await;
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Granted);
    servers[0].restart_empty().unwrap();
    claims.voters(2).await;
    servers[1].pause().unwrap();
    // The empty master would grant the slot to any job.
    assert_eq!(claims.claim(SLOT, "2@b").await, Claim::Undecided);
    assert_eq!(claims.fate(SLOT, "2@b").await, Fate::Open);
    assert_eq!(claims.fate(SLOT, "1@a").await, Fate::Open);
    servers[1].resume().unwrap();
    claims.voters(3).await;
    assert_eq!(claims.claim(SLOT, "2@b").await, Claim::Refused);
}

#[tokio::test]
async fn slots_below_the_floor_of_the_masters_are_not_on_record() {
    let (servers, claims) = claims(3).await;
    for server in servers.iter() {
        set_register(server, "slotFloor", &SLOT.to_string()).await;
    }
    assert_eq!(claims.claim(SLOT, "1@a").await, Claim::Refused);
    let unrecorded = Fate::Gone(Gone::Unrecorded { floor: SLOT });
    assert_eq!(claims.fate(SLOT, "1@a").await, unrecorded);
    assert_eq!(claims.claim(SLOT + 1, "1@a").await, Claim::Granted);
}
