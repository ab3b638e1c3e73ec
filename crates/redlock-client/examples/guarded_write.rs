//! Shows a resource that refuses the late write of a former holder, by the fencing token.
//!
//!     cargo run --package redlock-client --example guarded_write [URL URL URL]
//!
//! Without urls of masters, the example starts three masters of its own. The resource is one more Redis server with the
//! script of `examples/fenced-resource`.

use std::{error::Error, time::Duration};

use redis::{RedisResult, Script, aio::MultiplexedConnection};
use redlock_client::{
    clock,
    lease::{Authority, FencingToken, HolderIdentity, LockName},
    masters::{Acquired, Agreement, Lease, Masters, MastersConfig, adopt_open, init},
};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const APPEND: &str = include_str!("../../../examples/fenced-resource/append.lua");
/// The shortest lease that the operator allows, so that the example ends soon.
const LEASE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted,
    /// Another holder with a greater token has written.
    Refused,
}

/// The results of the writes of both holders.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub tokens: (FencingToken, FencingToken),
    pub first: Write,
    pub second: Write,
    /// The write of the first holder, begun under its lease and carried out after the second write.
    pub late: Write,
}

#[tokio::main]
async fn main() -> Result<()> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let resource = RedisServer::start(&ServerOptions::default())?;
    let outcome = if urls.is_empty() {
        let servers = RedisServers::start(3, &ServerOptions::default())?;
        seal(&servers.urls()).await?;
        run(&servers.urls(), &resource.url()).await?
    } else {
        run(&urls, &resource.url()).await?
    };
    println!("first holder, token {}: {:?}", outcome.tokens.0, outcome.first);
    println!("second holder, token {}: {:?}", outcome.tokens.1, outcome.second);
    println!("late write of the first holder: {:?}", outcome.late);
    Ok(())
}

/// Seals new masters, which is necessary once in their life.
pub(crate) async fn seal(urls: &[String]) -> Result<()> {
    let (masters, _notices, tasks) = Masters::open(&MastersConfig::new(urls), None)?;
    init(&masters).await?;
    tasks.close().await;
    Ok(())
}

/// Runs two holders one after the other. The first one does not notice the end of its lease in time.
pub(crate) async fn run(urls: &[String], resource: &str) -> Result<Outcome> {
    let config = MastersConfig::new(urls);
    let (_, (masters, _notices, tasks)) = adopt_open(config, Agreement::Majority).await?;
    masters
        .wait_for_first_poll(Masters::FIRST_POLL_TIMEOUT, |_| false)
        .await;
    let mut resource = redis::Client::open(resource)?
        .get_multiplexed_async_connection()
        .await?;

    let first_lease = acquire(&masters, "first").await?;
    let Some(authority) = first_lease.authority_at(clock::now()) else {
        return Err("the lease ended before the first write".into());
    };
    let first = append(&mut resource, authority, "by the first holder").await?;

    // The process of the first holder is frozen here, between this check and its next write. No renewal happens, and the
    // lease runs out.
    let second_lease = acquire(&masters, "second").await?;
    let Some(newer) = second_lease.authority_at(clock::now()) else {
        return Err("the lease ended before the second write".into());
    };
    let second = append(&mut resource, newer, "by the second holder").await?;
    let late = append(&mut resource, authority, "by the first holder, late").await?;

    drop(first_lease);
    second_lease.release().await?;
    tasks.close().await;
    Ok(Outcome {
        tokens: (authority.token, newer.token),
        first,
        second,
        late,
    })
}

/// Repeats attempts until the lock is acquired.
async fn acquire(masters: &Masters, holder: &str) -> Result<Lease> {
    let (lock, holder) = (
        LockName::parse("examples/ledger")?,
        HolderIdentity::parse(holder)?,
    );
    loop {
        match masters.acquire(&lock, &holder, LEASE).await? {
            Acquired::Won(lease) => return Ok(lease),
            // Another candidate holds the lock, or no majority answers.
            Acquired::Lost(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn append(resource: &mut MultiplexedConnection, authority: Authority, line: &str) -> Result<Write> {
    let script = Script::new(APPEND);
    let mut call = script.key("ledger");
    let length: RedisResult<u64> = call.arg(authority.token.0).arg(line).invoke_async(resource).await;
    match length {
        Ok(_) => Ok(Write::Accepted),
        Err(error) if error.code() == Some("FENCED") => Ok(Write::Refused),
        Err(error) => Err(error.into()),
    }
}
