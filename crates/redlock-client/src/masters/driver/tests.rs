use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::task::{ArcWake, waker};
use redlock_core::{ClusterId, ConnectionId, HolderIdentity, Keyspace, LeaseStem, LockName, Nonce};

use super::*;
use crate::{
    masters::{
        Credentials, MasterConfig, ScriptLoading, Tls, access::Access, link::Dial, shared::tests::config,
    },
    transport::Transport,
};

#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, SeqCst);
    }
}

/// A driver of three unreachable masters. The test takes its turns one by one.
struct Bench {
    running: Running,
    wakes: Arc<Wakes>,
    calls: mpsc::UnboundedSender<Call>,
    connections: mpsc::UnboundedSender<Carried>,
    _receiver: mpsc::Receiver<Notice>,
}

impl Bench {
    fn new() -> Self {
        let (connections, to_carry) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(config(), connections.clone()));
        let (notices, receiver) = mpsc::channel(Notice::QUEUE);
        let links = (0..3).map(|index| {
            let url = "redis://127.0.0.1:1".to_owned();
            let name = format!("m{index}");
            let access = Access {
                credentials: Credentials::default(),
                tls: Tls::default(),
            };
            let client = access.client(&MasterConfig {
                name: name.clone(),
                url: url.clone(),
            });
            let dial = Dial::new(url, client.unwrap(), Transport::tcp());
            let name = (index, name);
            Arc::new(Link::new(
                name,
                dial,
                Keyspace::new("p"),
                &shared,
                notices.downgrade(),
                ScriptLoading::default(),
            ))
        });
        let (calls, incoming) = mpsc::unbounded_channel();
        let driver = Driver {
            links: links.collect(),
            shared,
            calls: incoming,
            connections: to_carry,
            notices,
            meter: None,
            closing: CancellationToken::new(),
        };
        Self {
            running: Running::new(driver),
            wakes: Arc::default(),
            calls,
            connections,
            _receiver: receiver,
        }
    }

    /// Takes a turn that ends with nothing ready. Returns true if the turn woke its task.
    fn turn(&mut self) -> bool {
        let before = self.wakes.0.load(SeqCst);
        let waker = waker(self.wakes.clone());
        let turn = self.running.turn(&mut Context::from_waker(&waker));
        assert!(turn.is_pending());
        self.wakes.0.load(SeqCst) > before
    }

    /// Makes the engine send a call, so that further calls wait for its reply.
    fn hold(&self) {
        self.running.driver.shared.drive(|engine, now| {
            for master in 0..3 {
                let connection = ConnectionId(1);
                engine.handle(Input::Connected { master, connection }, now);
            }
            let (lock, command) = release();
            let id = RequestId(u64::MAX);
            engine.handle(Input::Request(Request { id, lock, command }), now);
            while engine.poll(now).is_some() {}
        });
    }
}

fn release() -> (Arc<LockKeys>, Command) {
    let cluster = ClusterId::new("a", "b").unwrap();
    let stem = LeaseStem::new(&cluster, &HolderIdentity::parse("h").unwrap(), Nonce(1));
    let attempt = Arc::new(LeaseAttempt::new(stem, Duration::from_secs(60)));
    let lock = Keyspace::new("p").lock(&LockName::internal("test", "lock").unwrap());
    (lock, Command::Release { attempt })
}

#[tokio::test]
async fn calls_that_a_full_batch_left_are_taken_although_the_batch_is_held() {
    let mut bench = Bench::new();
    for _ in 0..=AT_ONCE {
        let (lock, command) = release();
        let reply_to = ReplyTo::None;
        bench
            .calls
            .send(Call {
                lock,
                command,
                reply_to,
            })
            .unwrap();
    }
    bench.hold();
    assert!(bench.turn(), "nothing wakes the driver for the call that is left");
}

#[tokio::test]
async fn a_turn_polls_each_connection_once_however_many_calls_come_in_meanwhile() {
    const MOST: usize = 1_000;
    let mut bench = Bench::new();
    let (calls, (sender, mut completions)) = (bench.calls.clone(), mpsc::unbounded_channel());
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let busy = poll_fn(move |cx| {
        if counted.fetch_add(1, SeqCst) == MOST {
            return Poll::Ready(());
        }
        let (lock, command) = release();
        calls
            .send(Call::tagged(lock, command, 0, sender.clone()))
            .unwrap();
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    assert!(bench.connections.send(Box::pin(busy)).is_ok());
    for turns in 1..=3 {
        assert!(bench.turn());
        assert_eq!(polls.load(SeqCst), turns);
        assert!(completions.try_recv().is_ok(), "turn {turns} completes its call");
    }
}
