//! Runs one replica of the operator as the process of its pod.

use std::{net::SocketAddr, sync::Arc};

use futures_util::FutureExt;
use kube::Config;
use redlock_world::{
    kubernetes::{ApiServer, Partition},
    network::Party,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{api_client, manifests};
use crate::{
    controller::{
        OperatorError, Options, Siblings,
        clients::Clients,
        process::{HttpFront, Surroundings, run_in},
    },
    http_server::{ConnectionLimits, serve_http},
    lease::HolderIdentity,
    operator::{
        http::{DetailsPlace, OperatorRoutes},
        signals::Signals,
    },
    targets::{LeaseFence, RuntimeClasses},
};

/// The pod of a replica.
#[derive(Clone, Debug)]
pub(super) struct ReplicaPod {
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) ip: String,
}

/// A process of the operator.
#[derive(Debug)]
pub(super) struct OperatorProcess {
    /// The name of this process in the network and at the API server.
    pub(super) party: String,
    signals: mpsc::UnboundedSender<&'static str>,
    task: JoinHandle<Result<(), OperatorError>>,
}

impl OperatorProcess {
    /// Starts a process that notifies when it ends by itself.
    pub(super) fn start(pod: &ReplicaPod, party: &Party, api: &ApiServer, ended: Arc<Notify>) -> Self {
        let (signals, received) = Signals::channel();
        let name = party.name().to_owned();
        let connector = api_client::connector(api, &name);
        let config = Config::new(http::Uri::from_static("http://api.world"));
        let (clients, contact) = Clients::of(&config, &connector).unwrap();
        let surroundings = Surroundings {
            signals: received,
            clients,
            contact,
            front: front(party, &pod.ip),
            transport: party.transport(),
        };
        let options = options(pod);
        let task = tokio::spawn(async move {
            let end = run_in(options, surroundings, None).await;
            ended.notify_one();
            end
        });
        Self {
            party: name,
            signals,
            task,
        }
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        // The process may have ended.
        let _ = self.signals.send("SIGTERM");
    }

    /// Ends the process without any last word.
    pub(super) fn kill(&self, api: &ApiServer) {
        self.task.abort();
        api.partition(&self.party, Partition::Both);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

/// Serves HTTP on the runtime of the world.
fn front(party: &Party, ip: &str) -> HttpFront {
    let listener = party.listen(ip, manifests::OPERATOR_PORT).unwrap();
    let serve = |routes: OperatorRoutes| {
        let served = serve_http(
            listener,
            routes.public,
            ConnectionLimits::default(),
            CancellationToken::new(),
        );
        served.map(Ok).boxed()
    };
    HttpFront {
        address: format!("{ip}:{}", manifests::OPERATOR_PORT),
        details: DetailsPlace::WithProbes,
        reviewer: None,
        serve: Box::new(serve),
    }
}

fn options(pod: &ReplicaPod) -> Options {
    Options {
        listen: SocketAddr::from(([0, 0, 0, 0], manifests::OPERATOR_PORT)),
        listen_details: None,
        require_token: false,
        identity: HolderIdentity::parse(&pod.name).unwrap(),
        cluster_name: pod.cluster.clone(),
        namespaces: Vec::new(),
        siblings: Some(Siblings {
            namespace: manifests::OPERATOR_NAMESPACE.to_owned(),
            selector: format!("app={}", manifests::OPERATOR),
            own: pod.name.clone(),
            coordination_lease: Some(manifests::OPERATOR.to_owned()),
        }),
        lock_metrics: false,
        lease_fence: LeaseFence::default(),
        allowed_fields: ["services:/spec/selector".parse().unwrap()].into_iter().collect(),
        runtime_classes: RuntimeClasses::default(),
        api_requests_per_second: 40,
        quorums_file: None,
        new_password: None,
    }
}
