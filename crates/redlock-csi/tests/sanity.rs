//! Runs csi-sanity of kubernetes-csi on the driver, for the services that the driver has. `make csi-sanity`
//! builds the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[allow(dead_code)]
#[path = "driver/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "driver/gate.rs"]
mod gate;

use std::{
    convert::Infallible,
    env,
    future::{Future, Ready, ready},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use redlock_csi::messages::Empty;
use tokio::{net::UnixListener, process::Command};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use client::Kubelet;
use gate::Gate;

const UID: &str = "8f0c2b7e-4d3a-4f5e-9c1d-0123456789ab";
/// The tests that create a volume by a controller before they publish it.
const NEEDS_A_CONTROLLER: &str =
    "should work|should be idempotent|should remove target path|volume is not found|does not exist";

/// A controller without a known capability: csi-sanity asks for the list even if the driver has no
/// controller, and requires that the list has an entry.
#[derive(Clone)]
struct NoCapabilities;

#[derive(Clone, PartialEq, prost::Message)]
struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    capabilities: Vec<Capability>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Capability {
    #[prost(message, optional, tag = "1")]
    unknown: Option<Empty>,
}

impl UnaryService<Empty> for NoCapabilities {
    type Response = Capabilities;
    type Future = Ready<Result<Response<Capabilities>, Status>>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        let unknown = Some(Empty {});
        let capabilities = vec![Capability { unknown }];
        ready(Ok(Response::new(Capabilities { capabilities })))
    }
}

impl Service<http::Request<Body>> for NoCapabilities {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let handler = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Capabilities, Empty>::default());
            Ok(grpc.unary(handler, request).await)
        })
    }
}

fn address(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

async fn run(kubelet: &Kubelet, focus: &str, more: &[&str]) {
    let program = env::var("CSI_SANITY").expect("CSI_SANITY names the program; run make csi-sanity");
    let driver = kubelet.directory().join("plugins/fencing.redlock.dev/csi.sock");
    let output = Command::new(program)
        .args(["-csi.endpoint", &address(&driver)])
        .arg("-csi.mountdir")
        .arg(kubelet.volume(UID, "redlock").target)
        .arg("-csi.stagingdir")
        .arg(kubelet.directory().join("staging"))
        .args(["-ginkgo.v", "-ginkgo.no-color"])
        .args(["-ginkgo.focus", focus, "-ginkgo.skip", NEEDS_A_CONTROLLER])
        .args(more)
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    let ran = printed.lines().find(|line| line.contains(" Passed | "));
    println!("{focus}: {}", ran.expect("csi-sanity prints how many it ran"));
}

#[tokio::test]
#[ignore = "needs csi-sanity; run it by make csi-sanity"]
async fn csi_sanity_accepts_identity_and_node() {
    let kubelet = Kubelet::start(Gate::default()).await;
    run(&kubelet, "Identity Service", &[]).await;
    let controller = kubelet.directory().join("controller.sock");
    let incoming = UnixListenerStream::new(UnixListener::bind(&controller).unwrap());
    let controlling = tokio::spawn(Server::builder().serve_with_incoming(NoCapabilities, incoming));
    let endpoint = address(&controller);
    run(&kubelet, "Node Service", &["-csi.controllerendpoint", &endpoint]).await;
    controlling.abort();
}
