//! Builds the stage: five sealed masters, three replicas and the observer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Stage, manifests};
use crate::error::DemoError;
use crate::guard::Guard;
use crate::manifests::{LEASE_SECONDS, Manifests, with_masters};
use crate::observer::Observer;
use crate::screen::Screen;
use redlock_client::clock;
use redlock_client::masters::{MasterConfig, Masters, MastersConfig, init};
use redlock_testkit::{RedisServers, ServerOptions};

const MASTERS: usize = 5;
const REPLICAS: [&str; 3] = ["replica-a", "replica-b", "replica-c"];
/// The value that the operator derives for the leases of the demo.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);

pub(super) async fn build(screen: Screen) -> Result<Stage, DemoError> {
    let started = clock::now();
    let servers = RedisServers::start(MASTERS, &ServerOptions::default())?;
    let urls = servers.urls();
    let manifests = with_masters(&urls)?;
    let folder = tempfile::Builder::new()
        .prefix("redlock-demo-")
        .tempdir()
        .map_err(|source| DemoError::Folder {
            path: std::env::temp_dir(),
            source,
        })?;
    write(folder.path(), &manifests)?;
    let guard = Guard::start(folder.path()).map_err(DemoError::Guard)?;
    seal(&manifests.masters, &urls).await?;
    let mut stage = Stage {
        observer: Observer::start(&urls, &manifests.locks)?,
        replicas: Vec::new(),
        servers,
        guard,
        screen,
        started,
        masters: manifests.masters,
        logs: Vec::new(),
        lives: 0,
        folder,
    };
    for name in REPLICAS {
        stage.start_replica(name).await?;
    }
    Ok(stage)
}

fn write(folder: &Path, all: &Manifests) -> Result<(), DemoError> {
    let folder = manifests(folder);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DemoError::Folder { path, source }
    };
    fs::create_dir(&folder).map_err(failed(&folder))?;
    for (name, text) in &all.files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

/// Seals the masters, as `redlock init` does.
async fn seal(names: &[String], urls: &[String]) -> Result<(), DemoError> {
    let masters = names.iter().zip(urls).map(|(name, url)| MasterConfig {
        name: name.clone(),
        url: url.clone(),
    });
    let config = MastersConfig {
        masters: masters.collect(),
        command_timeout: COMMAND_TIMEOUT,
        longest_lease: Duration::from_secs(LEASE_SECONDS),
        reseal: false,
        ..MastersConfig::new([""; 0])
    };
    let (masters, _notices, tasks) = Masters::open(&config, None)?;
    let sealed = init(&masters).await;
    // No call is under way, so the tasks can be dropped at once.
    drop(tasks);
    sealed?;
    Ok(())
}
