//! A node without a kubelet: its cgroups and folders, the processes of node fencing, and the calls to the CSI
//! driver. The test acts as the kubelet.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redlock_csi::messages::{
    AccessType, Empty, MountVolume, NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability,
};
use tokio::time::timeout;
use tonic::{Request, Status, client::Grpc, codec::Codec, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::common::cgroups::Made;
use crate::common::forget_variables;
use crate::common::sandbox::{Sandbox, remove_pods};
use redlock_testkit::ChildGuard;

/// The ServiceAccount of the node agent in the chart.
pub const AGENT_ACCOUNT: &str = "redlock-operator-node-agent";
/// The time limit of a call: a node agent holds a call for 90 s.
const CALL: Duration = Duration::from_secs(120);

/// A node whose cgroups are below one of the test.
pub struct Node {
    root: Made,
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
}

/// A pod on the node.
#[derive(Clone, Debug)]
pub struct NodePod {
    pub namespace: String,
    pub name: String,
    pub sandbox: Sandbox,
}

impl Node {
    pub fn below(own: &Path) -> Self {
        let root = Made::below(own, "node").unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["pods", "plugins_registry"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            root,
            folder,
            // The folder is on tmpfs: a disk may hang for seconds.
            state: tempfile::tempdir_in("/dev/shm").unwrap(),
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        forget_variables(&mut command);
        command
            .arg(name)
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--cgroup-root")
            .arg(&self.root.0)
            .arg("--kubelet-dir")
            .arg(self.folder.path());
        command
    }

    pub fn state_dir(&self) -> PathBuf {
        self.state.path().join("state")
    }

    pub fn guardian(&self) -> ChildGuard {
        ChildGuard::spawn("node-guardian", &mut self.command("node-guardian"))
    }

    /// Starts an agent of this cluster, which serves HTTP on `port`.
    pub fn agent(&self, cluster: &str, kubeconfig: &Path, port: u16) -> ChildGuard {
        let mut agent = self.command("node-agent");
        agent
            .args(["--node-name", "node-1", "--cluster", cluster])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .env("KUBECONFIG", kubeconfig);
        ChildGuard::spawn("node-agent", &mut agent)
    }

    pub fn sockets(&self) -> redlock_csi::Options {
        redlock_csi::Options::new("node-1", self.folder.path())
    }

    pub fn pod(&self, namespace: &str, name: &str, uid: &str) -> NodePod {
        NodePod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            sandbox: Sandbox::make(&self.root.0, self.folder.path(), uid),
        }
    }

    /// Sends the call of the kubelet before it starts the containers of the pod.
    pub fn publish(
        &self,
        pod: &NodePod,
        lock: &str,
    ) -> impl Future<Output = Result<(), Status>> + Send + 'static {
        let attributes = [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.namespace", &pod.namespace),
            ("csi.storage.k8s.io/pod.name", &pod.name),
            ("csi.storage.k8s.io/pod.uid", &pod.sandbox.uid),
            ("lock", lock),
        ];
        let request = NodePublishVolumeRequest {
            volume_id: format!("csi-{}", pod.sandbox.uid),
            target_path: pod.sandbox.target.display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            secrets: HashMap::new(),
            volume_context: attributes.map(|(name, value)| (name.into(), value.into())).into(),
        };
        call(self.sockets().csi_socket, "NodePublishVolume", request)
    }

    /// Sends the call of the kubelet after the containers of the pod have ended.
    pub fn unpublish(&self, pod: &NodePod) -> impl Future<Output = Result<(), Status>> + Send + 'static {
        let request = NodeUnpublishVolumeRequest {
            volume_id: format!("csi-{}", pod.sandbox.uid),
            target_path: pod.sandbox.target.display().to_string(),
        };
        call(self.sockets().csi_socket, "NodeUnpublishVolume", request)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        remove_pods(&self.root.0);
    }
}

async fn call<R>(socket: PathBuf, method: &'static str, request: R) -> Result<(), Status>
where
    R: Send + Sync + 'static,
    ProstCodec<R, Empty>: Codec<Encode = R, Decode = Empty> + Default,
{
    let path = format!("/csi.v1.Node/{method}").parse().unwrap();
    let called = async {
        let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let endpoint = endpoint.origin("http://localhost".parse().unwrap());
        let mut client = Grpc::new(endpoint.connect().await.map_err(unavailable)?);
        client.ready().await.map_err(unavailable)?;
        let codec = ProstCodec::<R, Empty>::default();
        client.unary(Request::new(request), path, codec).await.map(drop)
    };
    timeout(CALL, called)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
}
