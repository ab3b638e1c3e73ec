//! The settings of an API server.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;

/// The settings of an API server.
#[derive(Clone)]
pub struct ApiOptions {
    /// The seed of all names, UIDs, latencies and random faults.
    pub seed: u64,
    /// The UID of the namespace `kube-system`, which identifies the cluster.
    pub cluster_uid: String,
    /// The wall clock of the server.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The CRDs that exist from the start. Default: those of `crds/`.
    pub definitions: Vec<Arc<Value>>,
    /// The namespaces that exist from the start, besides `kube-system` and `default`.
    pub namespaces: Vec<String>,
    /// The number of changes of each resource that a watch can resume from.
    pub event_window: usize,
    /// The number of writes that are kept for the observer; older ones are dropped and counted.
    pub history_limit: usize,
    /// The resourceVersion before the first write.
    pub first_revision: u64,
}

static DEFINITIONS: LazyLock<Vec<Arc<Value>>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../../crds/redlock.dev_leaderlocks.yaml"),
        include_str!("../../../../crds/redlock.dev_redisquorums.yaml"),
    ];
    let parsed = texts
        .iter()
        .map(|text| Arc::new(serde_yaml::from_str(text).expect("a CRD of this repository")));
    parsed.collect()
});

impl ApiOptions {
    /// Returns settings with a wall clock that begins at `start` and runs with the clock of tokio.
    pub fn starting_at(start: Timestamp, seed: u64) -> Self {
        let began = tokio::time::Instant::now();
        Self::new(seed, move || start + began.elapsed())
    }

    pub fn new(seed: u64, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            seed,
            cluster_uid: "00000000-0000-4000-8000-000000000001".to_owned(),
            now: Arc::new(now),
            definitions: Self::project_definitions().to_vec(),
            namespaces: Vec::new(),
            event_window: 1_000,
            history_limit: 100_000,
            first_revision: 1_000,
        }
    }

    /// Returns the CRDs of `crds/`.
    pub fn project_definitions() -> &'static [Arc<Value>] {
        &DEFINITIONS
    }
}

impl std::fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiOptions")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
