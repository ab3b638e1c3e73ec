//! Tests that the replies of one hostile master neither delay the others nor fill the memory.

#[path = "hostile/server.rs"]
mod server;

use std::{
    fs,
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use redlock_client::{
    clock,
    masters::{Acquired, Lease, MasterStatus, Masters, MastersConfig, Renewal, Secret, Tls},
};
use redlock_core::{Loss, Obstacle};
use redlock_testkit::{
    RedisServers, ServerOptions, TlsMaterial, eventually,
    masters::{Opened, acquire_soon_for, config, identity, lock_name, open},
};
use tokio::sync::Mutex;

use self::server::{Attack, HostileServer};
use crate::seal::{BOUND, raw};

/// The length of each attack.
const ATTACK: Duration = Duration::from_secs(3);
/// The lease that is held meanwhile, renewed every third of it.
const LEASE: Duration = Duration::from_secs(3);
/// What all tasks of this process may take in addition while a master attacks.
const MEMORY: usize = 100 << 20;
/// Most of a lease: what one task of a busy machine may wait.
const DELAY: Duration = Duration::from_millis(1_500);

/// A wait for a CPU after which a measurement is repeated.
const STALL: Duration = Duration::from_millis(300);

/// That of production: a master that does not answer is given up soon.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);
/// A connection attempt each second, after some that follow each other faster.
const CONNECTIONS: usize = 20;

/// One attack at a time: each test measures the memory of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The threads that run the tasks of a test.
#[derive(Clone, Debug, Default)]
struct RuntimeThreads(Arc<StdMutex<Vec<String>>>);

impl RuntimeThreads {
    fn add_current(&self) {
        let thread = fs::read_link("/proc/thread-self").unwrap();
        self.0
            .lock()
            .unwrap()
            .push(format!("/proc/{}/schedstat", thread.display()));
    }

    /// Returns for how long each of these threads was ready to run and had no CPU.
    fn waited(&self) -> Vec<Duration> {
        let threads = self.0.lock().unwrap();
        // A thread of blocking work may have ended.
        let texts = threads
            .iter()
            .map(|path| fs::read_to_string(path).unwrap_or_default());
        let waits = texts.map(|text| text.split(' ').nth(1).and_then(|wait| wait.parse().ok()));
        waits
            .map(|wait| Duration::from_nanos(wait.unwrap_or_default()))
            .collect()
    }

    /// Returns the longest wait of one of the threads since `before`.
    fn waited_since(&self, before: &[Duration]) -> Duration {
        let now = self.waited();
        let waits = now
            .iter()
            .zip(before)
            .map(|(now, before)| now.saturating_sub(*before));
        waits.max().unwrap_or_default()
    }

    /// Runs a test on a runtime of two threads.
    fn run(&self, test: impl Future<Output = ()>) {
        let threads = self.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || threads.add_current())
            .build()
            .unwrap();
        self.add_current();
        runtime.block_on(test);
    }
}

fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Measures the memory until the end of the attack, and for how long the machine let a thread wait. Ends an attack that fills
/// the memory before the machine has none left.
fn watch(server: Arc<HostileServer>, over: Arc<AtomicBool>) -> JoinHandle<(usize, Duration)> {
    let before = resident();
    std::thread::spawn(move || {
        let (mut peak, mut stall, mut last) = (0, Duration::ZERO, Instant::now());
        while !over.load(SeqCst) {
            stall = stall.max(last.elapsed());
            last = Instant::now();
            peak = peak.max(resident().saturating_sub(before));
            if peak > 4 * MEMORY {
                server.set(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        (peak, stall)
    })
}

#[derive(Debug)]
struct Measured {
    renewals: usize,
    /// Renewals without success, and checks that found no authority.
    lost: usize,
    /// Times to acquire and release another lock, without the waits for a CPU, in order.
    took: Vec<Duration>,
    /// For how long one of the threads of the test waited for a CPU.
    waited: Duration,
    memory: usize,
    /// For how long the machine let a thread wait that had nothing to do with the attack.
    stall: Duration,
    connections: usize,
    sent: usize,
}

impl Measured {
    fn check(&self, attack: Attack, calm: Duration) {
        let (median, longest) = (self.took[self.took.len() / 2], self.took[self.took.len() - 1]);
        let shown = format!(
            "{attack:?}, stall {:?}, {:?} without a CPU: {} renewals, {} of them and of the checks lost; {} locks of {median:?} (without the attack {calm:?}), at \
             most {longest:?}; {} MiB of memory; {} MiB received on {} connections",
            self.stall,
            self.waited,
            self.renewals,
            self.lost,
            self.took.len(),
            self.memory >> 20,
            self.sent >> 20,
            self.connections,
        );
        println!("{shown}");
        assert!(self.renewals > 0 && self.lost == 0, "{shown}");
        assert!(longest < DELAY + 4 * self.stall, "{shown}");
        assert!(self.memory < MEMORY, "{shown}");
        assert!(self.connections < CONNECTIONS, "{shown}");
    }
}

/// Renews a lease until the attack is over. Returns the number of renewals, and of those without success and checks that found
/// no authority.
async fn renews(mut lease: Lease, over: Arc<AtomicBool>) -> (usize, usize) {
    let (mut lost, mut renewals) = (0, 0);
    let mut renewed = Instant::now();
    while !over.load(SeqCst) {
        tokio::time::sleep(LEASE / 30).await;
        if renewed.elapsed() > LEASE / 3 {
            renewed = Instant::now();
            renewals += 1;
            lost += usize::from(lease.renew().await.unwrap() != Renewal::Renewed);
        }
        lost += usize::from(lease.authority_at(clock::now()).is_none());
    }
    (renewals, lost)
}

async fn attacked(
    masters: &Opened,
    server: &Arc<HostileServer>,
    attack: Attack,
    threads: &RuntimeThreads,
) -> Measured {
    let lease = acquire_soon_for(masters, "a/held", "me", LEASE).await;
    let over = Arc::new(AtomicBool::new(false));
    let watching = watch(server.clone(), over.clone());
    let (connections, sent) = server.counts();
    let (mut took, all) = (Vec::new(), threads.waited());
    server.set(Some(attack));
    let begun = Instant::now();
    let renewing = tokio::spawn(renews(lease, over.clone()));
    while begun.elapsed() < ATTACK {
        let (started, waited) = (Instant::now(), threads.waited());
        let other = acquire_soon_for(masters, "a/lone", "me", LEASE).await;
        other.release().await.unwrap();
        took.push(started.elapsed().saturating_sub(threads.waited_since(&waited)));
    }
    over.store(true, SeqCst);
    let (memory, stall) = watching.join().unwrap();
    let (renewals, lost) = renewing.await.unwrap();
    took.sort();
    let after = server.counts();
    Measured {
        renewals,
        lost,
        took,
        waited: threads.waited_since(&all),
        memory,
        stall,
        connections: after.0 - connections,
        sent: after.1 - sent,
    }
}

/// Measures a lock without an attack.
async fn calm(masters: &Opened) -> Duration {
    let mut took = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        let lease = acquire_soon_for(masters, "a/lone", "me", LEASE).await;
        lease.release().await.unwrap();
        took.push(started.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}

/// Reads registers again and again: as the sealer does while a master is without a seal.
async fn read_registers(masters: Masters) {
    loop {
        masters.registers().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Holds a lease on five masters while one of them attacks, which then votes again.
fn survives(attack: Attack, tls: Option<TlsMaterial>) {
    let threads = RuntimeThreads::default();
    threads.run(survive(attack, tls, &threads));
}

async fn survive(attack: Attack, tls: Option<TlsMaterial>, threads: &RuntimeThreads) {
    let _alone = ALONE.lock().await;
    let servers = RedisServers::start(5, &ServerOptions::default()).unwrap();
    let server = Arc::new(HostileServer::before(servers[0].port(), tls.as_ref()));
    let mut config = MastersConfig {
        command_timeout: COMMAND_TIMEOUT,
        ..config(&servers)
    };
    config.masters[0].url = server.url();
    let ca = tls.map(|tls| Secret::new(fs::read_to_string(tls.ca()).unwrap()));
    config.tls = Tls { ca, ..Tls::default() };
    let masters = open(&config);
    masters.seal(&servers).await;

    let calm = calm(&masters).await;
    let reading =
        (attack == Attack::Registers).then(|| tokio::spawn(read_registers(masters.masters.clone())));
    let mut measured = attacked(&masters, &server, attack, threads).await;
    for _ in 0..5 {
        // A busy machine loses the lease without any attack.
        if measured.lost == 0 || measured.stall.max(measured.waited) < STALL {
            break;
        }
        println!("measured again: {measured:?}");
        server.set(None);
        masters.voters(5).await;
        measured = attacked(&masters, &server, attack, threads).await;
    }
    measured.check(attack, calm);
    let reason = |status: &MasterStatus| {
        let trouble = status.trouble.as_ref();
        trouble.is_some_and(|unknown| unknown.to_string().contains(attack.reason()))
    };
    masters.master(0, attack.reason(), reason).await;
    server.set(None);
    if let Some(reading) = reading {
        reading.abort();
    }
    masters.voters(5).await;
}

/// A person, or another program, wrote the key of a lease.
#[tokio::test]
async fn a_foreign_value_of_a_megabyte_is_an_obstacle_and_no_hostile_reply() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    for server in servers.iter() {
        for key in ["redlock:lease:a/b", "redlock:reserved:a/c"] {
            let _: () = raw(server).await.set(key, "x".repeat(1 << 20)).await.unwrap();
        }
    }
    for lock in ["a/b", "a/c"] {
        let acquired = masters.acquire(&lock_name(lock), &identity("me"), LEASE).await;
        assert!(
            matches!(acquired, Ok(Acquired::Lost(Loss::Refused(_)))),
            "{acquired:?}"
        );
    }
    let locks = [lock_name("a/b"), lock_name("a/c")];
    for account in masters.accounts(&locks).await {
        let account = account.unwrap();
        assert!(matches!(account[0].lease, Some((Obstacle::Foreign(_), None))));
        assert!(account[1].reservation.is_some());
    }
    assert_eq!(masters.voters_now(), 3);
}

/// As many as docs/tuning.md names, with the longest names that Kubernetes permits.
#[tokio::test]
async fn the_registers_and_names_of_ten_thousand_locks_are_read() {
    const LOCKS: usize = 10_000;
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    for server in servers.iter() {
        let mut connection = raw(server).await;
        for chunk in 0..LOCKS / 1_000 {
            let mut pipeline = redis::pipe();
            for lock in 0..1_000 {
                let name = format!("{}/{chunk}-{lock}-{}", "n".repeat(63), "l".repeat(245));
                for field in ["held", "clean"] {
                    pipeline
                        .hset("redlock:meta", format!("{field}:{name}"), 1)
                        .ignore();
                }
                pipeline
                    .hset("redlock:meta", format!("delay:{name}"), "1|40000")
                    .ignore();
                pipeline.set(format!("redlock:lease:{name}"), "1").ignore();
            }
            let _: () = pipeline.query_async(&mut connection).await.unwrap();
        }
    }
    // A busy machine may take longer than the time limit of a read.
    eventually(BOUND, "the registers are read", async || {
        let registers = masters.registers().await.into_iter();
        let registers = registers
            .collect::<Result<Vec<_>, _>>()
            .map_err(|unknown| unknown.to_string())?;
        let all = registers
            .iter()
            .all(|registers| registers.numbers.len() > 2 * LOCKS);
        if all { Ok(()) } else { Err("too few".to_owned()) }
    })
    .await;
    for names in masters.lock_names(BOUND).await {
        let names = names.unwrap();
        assert_eq!((names.names.len(), names.complete), (LOCKS, true));
    }
}

/// A hostile master could return keys without an end.
#[tokio::test]
async fn a_walk_through_names_ends_before_it_fills_the_memory() {
    const KEYS: &str = "for i = 1, 100001 do redis.call('SET', 'redlock:lease:a/' .. i, '') end";
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.voters(0).await;
    let mut connection = raw(&servers[0]).await;
    let _: () = redis::cmd("EVAL")
        .arg(KEYS)
        .arg(0)
        .query_async(&mut connection)
        .await
        .unwrap();
    let names = eventually(BOUND, "the first master is connected", async || {
        masters.lock_names(BOUND).await.swap_remove(0)
    });
    let names = names.await;
    assert_eq!((names.names.len(), names.complete), (100_000, false));
}

#[test]
fn a_text_without_an_end_delays_no_other_master() {
    survives(Attack::Bulk, None);
}

#[test]
fn a_line_without_an_end_delays_no_other_master() {
    survives(Attack::Line, None);
}

#[test]
fn messages_to_no_subscription_delay_no_other_master() {
    survives(Attack::Push, None);
}

#[test]
fn a_flood_of_releases_delays_no_other_master() {
    survives(Attack::Released, None);
}

#[test]
fn confirmations_that_were_not_requested_delay_no_other_master() {
    survives(Attack::Subscribed, None);
}

#[test]
fn an_array_nested_without_an_end_delays_no_other_master() {
    survives(Attack::Nested, None);
}

#[test]
fn an_array_of_a_billion_numbers_delays_no_other_master() {
    survives(Attack::Array, None);
}

#[test]
fn replies_to_no_request_delay_no_other_master() {
    survives(Attack::Replies, None);
}

#[test]
fn the_longest_list_of_registers_delays_no_other_master() {
    survives(Attack::Registers, None);
}

#[test]
fn tls_bounds_replies_as_tcp_does() {
    for attack in [Attack::Bulk, Attack::Line, Attack::Push] {
        survives(attack, Some(TlsMaterial::new()));
    }
}
