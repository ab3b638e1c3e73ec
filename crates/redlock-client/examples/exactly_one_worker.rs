//! Runs several workers, of which exactly one works. When it stops, another one continues.
//!
//!     cargo run --package redlock-client --example exactly_one_worker [NAME URL URL URL]
//!
//! With a name and the urls of masters, this process is one worker: start several, and end the one that works. Without
//! arguments, the example starts three masters of its own and two workers in this process.

use std::{collections::HashSet, error::Error, sync::Arc, time::Duration};

use redlock_client::{
    clock,
    elector::{Elector, Silent},
    lease::{FencingToken, HolderIdentity, LockName, Terms, Timings},
    masters::{Agreement, Masters, MastersConfig, adopt_open, init},
};
use redlock_testkit::{RedisServers, ServerOptions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Shorter than the rest of a lease after a failed renewal.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 5;

/// One step of work.
#[derive(Debug)]
pub(crate) struct Step {
    pub worker: String,
    pub token: FencingToken,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let Some(name) = args.next() {
        let urls: Vec<String> = args.collect();
        let (steps, mut done) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let worker = tokio::spawn(work(name, urls, steps, stop.clone()));
        tokio::select! {
            () = async { while let Some(step) = done.recv().await { show(&step) } } => {}
            signal = tokio::signal::ctrl_c() => signal?,
        }
        stop.cancel();
        return worker.await?;
    }
    let servers = RedisServers::start(3, &ServerOptions::default())?;
    seal(&servers.urls()).await?;
    for step in relay(&servers.urls()).await? {
        show(&step);
    }
    Ok(())
}

fn show(step: &Step) {
    println!("{} works under token {}", step.worker, step.token);
}

/// Seals new masters, which is necessary once in their life.
pub(crate) async fn seal(urls: &[String]) -> Result<()> {
    let (masters, _notices, tasks) = Masters::open(&MastersConfig::new(urls), None)?;
    init(&masters).await?;
    tasks.close().await;
    Ok(())
}

/// Runs two contending workers: the active one stops after some steps, and the other one continues.
pub(crate) async fn relay(urls: &[String]) -> Result<Vec<Step>> {
    let (steps, mut done) = mpsc::unbounded_channel();
    let workers = ["one", "two"].map(|name| {
        let stop = CancellationToken::new();
        let worker = tokio::spawn(work(name.to_owned(), urls.to_vec(), steps.clone(), stop.clone()));
        (name, stop, worker)
    });
    // The channel then ends with the last worker.
    drop(steps);
    let mut all: Vec<Step> = Vec::new();
    while let Some(step) = done.recv().await {
        all.push(step);
        let of_worker = |name: &str| all.iter().filter(|step| step.worker == name).count();
        for (name, stop, _) in &workers {
            if of_worker(name) >= STEPS {
                stop.cancel();
            }
        }
    }
    for (_, _, worker) in workers {
        worker.await??;
    }
    Ok(all)
}

/// Contends for the lock until `stop`, and works while it holds the lock.
pub(crate) async fn work(
    name: String,
    urls: Vec<String>,
    steps: mpsc::UnboundedSender<Step>,
    stop: CancellationToken,
) -> Result<()> {
    let config = MastersConfig::new(&urls);
    let (_, (masters, notices, mut tasks)) = adopt_open(config, Agreement::Majority).await?;
    masters
        .wait_for_first_poll(Masters::FIRST_POLL_TIMEOUT, |_| false)
        .await;
    let lock = LockName::parse("examples/worker")?;
    let (elector, mut contending) = Elector::start(
        masters.clone(),
        notices,
        HolderIdentity::parse(&name)?,
        Arc::new(Silent),
    );
    let terms = Terms::of_own_work(masters.cluster().clone(), Timings::derive(Duration::ZERO));
    elector.put(lock.clone(), terms);
    elector.answers().await;
    let view = elector.watch(&lock).ok_or("the elector has ended")?;
    let ended = loop {
        // The authority is read before each step. A resource outside this process gets the token with each write.
        let authority = view.borrow().authority_at(clock::now());
        if let Some(authority) = authority {
            let (worker, token) = (name.clone(), authority.token);
            let _ = steps.send(Step { worker, token });
        }
        tokio::select! {
            () = tokio::time::sleep(STEP) => {}
            () = stop.cancelled() => break None,
            end = &mut contending => break Some(format!("the elector ended: {end:?}")),
            end = tasks.ended() => break Some(end.to_string()),
        }
    };
    if let Some(ended) = ended {
        return Err(ended.into());
    }
    // Releases the lock, so that another worker continues at once.
    elector.shut_down(HashSet::new());
    contending.await??;
    tasks.close().await;
    Ok(())
}
