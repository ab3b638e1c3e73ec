//! A simulated cluster for a conversation.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use tokio::{task::JoinHandle, time};

use super::server::{CALLER, ConversationServer, ServerAnswer};
use crate::{
    control_plane,
    controllers::{ControllerKind, ControllerSettings, Controllers},
    kubernetes::{ApiBody, ApiOptions, ApiRequest, ApiServer},
};

const SEED: u64 = 7;

/// The controllers that do not run: pods have no node, as on a control plane without kubelets.
const ABSENT: [ControllerKind; 3] = [
    ControllerKind::Scheduler,
    ControllerKind::Kubelet,
    ControllerKind::NodeLifecycle,
];

/// An API server, with or without controllers. Lives in a runtime with a paused clock.
#[derive(Debug)]
pub struct SimulatedCluster {
    api: ApiServer,
    controllers: Option<JoinHandle<()>>,
}

impl SimulatedCluster {
    pub fn start(start: Timestamp, has_controllers: bool) -> Self {
        let options = ApiOptions::starting_at(start, SEED);
        let now = options.now.clone();
        let api = ApiServer::new(options);
        let follow = || {
            let api = api.clone();
            tokio::spawn(async move { run_controllers(&api, || now()).await })
        };
        Self {
            controllers: has_controllers.then(follow),
            api,
        }
    }
}

/// Calls the controllers after each change, and at the times that they name.
async fn run_controllers(api: &ApiServer, now: impl Fn() -> Timestamp) {
    let mut controllers = Controllers::new(ControllerSettings::default(), SEED);
    ABSENT.into_iter().for_each(|kind| controllers.stop(kind));
    loop {
        let revision = api.revision();
        let (_, next) = control_plane::reconcile(api, &mut controllers, now());
        let wait = next.map_or(Duration::MAX, |next| {
            Duration::try_from(next.duration_since(now())).unwrap_or_default()
        });
        drop(time::timeout(wait.min(Duration::from_secs(3_600)), api.changed(revision)).await);
    }
}

impl Drop for SimulatedCluster {
    fn drop(&mut self) {
        if let Some(controllers) = &self.controllers {
            controllers.abort();
        }
    }
}

impl ConversationServer for SimulatedCluster {
    async fn send(&self, request: ApiRequest) -> ServerAnswer {
        let answer = self.api.handle(CALLER, request).await.expect("no fault is set");
        ServerAnswer {
            status: answer.status,
            body: match answer.body {
                ApiBody::Unary(bytes) => stream::once(async { bytes }).boxed(),
                ApiBody::Watch(watch) => watch
                    .into_stream()
                    .filter_map(|chunk| async { chunk.ok() })
                    .boxed(),
            },
        }
    }
}
