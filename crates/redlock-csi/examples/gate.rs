//! A gate on the pods of one node: each pod is held for some seconds, refused with a reason meanwhile, and then started.
//!
//! `cargo run -p redlock-csi --example gate -- KUBELET_DIR NODE_NAME SECONDS`, as root on a node, with the CSIDriver object of the chart.

use std::{
    collections::HashMap,
    env,
    error::Error,
    fs,
    io::ErrorKind,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redlock_csi::{Options, PublishError, PublishRequest, UnpublishError, UnpublishRequest, Volumes, serve};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A call waits so long before it is refused, for the kubelet to show the reason.
const HOLD: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Gate {
    wait: Duration,
    /// By UID, the moment from which the pod may start.
    pods: Mutex<HashMap<String, Instant>>,
}

impl Gate {
    fn opens(&self, uid: &str, now: Instant) -> Instant {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        *pods.entry(uid.to_owned()).or_insert(now + self.wait)
    }
}

impl Volumes for Gate {
    async fn publish(&self, request: PublishRequest) -> Result<(), PublishError> {
        let now = Instant::now();
        let opens = self.opens(&request.pod.uid, now);
        info!(?request, "publish");
        sleep(opens.saturating_duration_since(now).min(HOLD)).await;
        let left = opens.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            return Ok(());
        }
        Err(PublishError::NotYet(format!(
            "the gate for lock {} opens in {left} s",
            request.lock
        )))
    }

    async fn unpublish(&self, request: UnpublishRequest) -> Result<(), UnpublishError> {
        info!(?request, "unpublish");
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.remove(request.target.uid());
        remove(request.target.path())
    }

    fn ready(&self) -> bool {
        true
    }
}

fn remove(target: &Path) -> Result<(), UnpublishError> {
    match fs::remove_dir_all(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(UnpublishError(error.to_string())),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kubelet_dir, node_name, seconds] = &arguments[..] else {
        return Err("expected three arguments: KUBELET_DIR NODE_NAME SECONDS".into());
    };
    let gate = Gate {
        wait: Duration::from_secs(seconds.parse()?),
        pods: Mutex::default(),
    };
    let shutdown = CancellationToken::new();
    let serving = serve(gate, Options::new(node_name, kubelet_dir), shutdown.clone());
    tokio::pin!(serving);
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        served = &mut serving => return Ok(served?),
        _ = terminated.recv() => shutdown.cancel(),
    }
    Ok(serving.await?)
}
