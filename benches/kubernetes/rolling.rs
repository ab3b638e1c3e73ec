//! Measures a rolling update that replaces each of three replicas: the new replica starts before the old one
//! is stopped. No lock ever has two holders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::common::http;
use crate::fixture::Operator;
use crate::log::{self, Kind, milliseconds};
use crate::stage::{LEASE, Stage};
use crate::table::{self, Many};

const LOCKS: usize = 100;
/// The interval at which each replica is asked for its claims.
const ASK: Duration = Duration::from_millis(50);

/// A claim: replica, lock and token.
type Key = (String, String, u64);

type Answers = Arc<Mutex<HashMap<Key, Span>>>;

/// The interval of a claim, according to the answers of the replica and to its log.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Duration,
    to: Duration,
}

pub async fn run() {
    let stage = Stage::new(LOCKS).await;
    let mut operators = stage.operators(&["replica-0", "replica-1", "replica-2"]).await;
    let answers = Answers::default();
    let mut asking = JoinSet::new();
    for operator in &operators {
        ask(&mut asking, operator, answers.clone());
    }
    tokio::time::sleep(LEASE / 2).await;
    table::begin(&format!("Rolling update of 3 replicas with {LOCKS} locks"));
    let began = log::now();
    let mut events = Vec::new();
    let mut ending = Vec::new();
    for index in 0..3 {
        let new = stage.operator(&format!("replica-new-{index}")).await;
        ask(&mut asking, &new, answers.clone());
        new.wait_ready();
        operators.push(new);
        let mut old = operators.remove(0);
        old.child.signal(Signal::SIGTERM);
        let (status, took) = old.child.wait(crate::stage::BOUND);
        assert!(status.success(), "{status}");
        ending.push(took.as_secs_f64() * 1e3);
        events.extend(
            log::events(&old.child, Duration::ZERO)
                .into_iter()
                .map(|s| (old.name.clone(), s)),
        );
        stage.wait_held().await;
    }
    stage.wait_reported().await;
    asking.shutdown().await;
    for operator in &operators {
        events.extend(
            log::events(&operator.child, Duration::ZERO)
                .into_iter()
                .map(|s| (operator.name.clone(), s)),
        );
    }
    let answers = answers.lock().unwrap().clone();
    let claims = claims(&events, answers);
    let (mut overlaps, mut falling, mut gaps, mut unheld) = (0, 0, Vec::new(), Vec::new());
    for claims in claims.values() {
        let mut without = 0.0;
        for pair in claims.windows(2) {
            let ((before, _), (after, _)) = (&pair[0], &pair[1]);
            overlaps += usize::from(after.from < before.to);
            falling += usize::from(pair[1].1 <= pair[0].1);
            if after.from > began {
                gaps.push(milliseconds(after.from, before.to));
                without += milliseconds(after.from, before.to);
            }
        }
        unheld.push(without);
    }
    let sources = "by `/locks` every 50 ms and by the logs";
    table::row(
        &format!("two holders at one instant, {sources}"),
        &overlaps.to_string(),
        "0",
    );
    table::row("tokens that did not rise", &falling.to_string(), "0");
    table::row("transitions", &gaps.len().to_string(), "");
    table::row("unheld, each transition", &Many::of(gaps).text(), "");
    table::row(
        "unheld, each lock in the whole update",
        &Many::of(unheld).text(),
        "",
    );
    table::row(
        "from SIGTERM to the end of the process",
        &Many::of(ending).text(),
        "≤ 2000 ms",
    );
}

/// Asks a replica for its claims until it no longer answers.
fn ask(tasks: &mut JoinSet<()>, operator: &Operator, answers: Answers) {
    let (name, port) = (operator.name.clone(), operator.port());
    tasks.spawn(async move {
        loop {
            let asked = log::now();
            let answer = tokio::task::spawn_blocking(move || http::get(port, "/locks")).await;
            let Ok(Ok((200, body))) = answer else {
                return;
            };
            let answered = log::now();
            let body: Value = serde_json::from_str(&body).unwrap();
            note(&answers, &name, &body, (asked, answered));
            tokio::time::sleep(ASK).await;
        }
    });
}

fn note(answers: &Answers, replica: &str, body: &Value, (asked, answered): (Duration, Duration)) {
    let mut answers = answers.lock().unwrap();
    let locks = body["locks"].as_array().unwrap();
    for lock in locks.iter().filter(|lock| lock["role"] == "Active") {
        let token = lock["fencingToken"].as_u64().unwrap();
        let key = (
            replica.to_owned(),
            lock["lockName"].as_str().unwrap().to_owned(),
            token,
        );
        let first = Span {
            from: answered,
            to: asked,
        };
        let span = answers.entry(key).or_insert(first);
        span.to = span.to.max(asked);
    }
}

/// Returns the claims of each lock, sorted by their beginning. An answer of a replica can only extend a claim.
fn claims(
    events: &[(String, log::Event)],
    answers: HashMap<Key, Span>,
) -> BTreeMap<String, Vec<(Span, u64)>> {
    let mut claims: BTreeMap<Key, Span> = BTreeMap::new();
    for (replica, event) in events {
        let key = (replica.clone(), event.lock.clone(), event.token);
        // A claim without an end is still held.
        let span = claims.entry(key).or_insert(Span {
            from: event.at,
            to: Duration::MAX,
        });
        if event.kind != Kind::Acquired {
            span.to = event.at;
        }
    }
    for (key, answered) in answers {
        let span = claims.entry(key).or_insert(answered);
        span.from = span.from.min(answered.from);
        span.to = span.to.max(answered.to);
    }
    let mut of_lock: BTreeMap<String, Vec<(Span, u64)>> = BTreeMap::new();
    for ((_, lock, token), span) in claims {
        of_lock.entry(lock).or_default().push((span, token));
    }
    for claims in of_lock.values_mut() {
        claims.sort_by_key(|(span, _)| span.from);
    }
    of_lock
}
