//! A node without a kubelet: its cgroups and folders, the processes of node fencing, and the calls to the CSI driver. The
//! test is the kubelet.

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
use crate::fixture::BOUND;
use redlock_testkit::{ChildGuard, eventually_blocking};

/// The ServiceAccount of the node agent in the chart.
pub const AGENT_ACCOUNT: &str = "redlock-operator-node-agent";
/// A node agent holds a call for 90 s.
const CALL: Duration = Duration::from_secs(120);

/// Its cgroups are below one of the test.
pub struct Node {
    pub root: Made,
    kubepods: PathBuf,
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
}

/// What the kubelet has made of a pod before it publishes the volume.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub cgroup: PathBuf,
    pub target: PathBuf,
}

impl Node {
    pub fn below(own: &Path) -> Self {
        let root = Made::below(own, "node").unwrap();
        let kubepods = root.0.join("kubepods.slice/kubepods-burstable.slice");
        fs::create_dir_all(&kubepods).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["pods", "plugins_registry"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            root,
            kubepods,
            folder,
            // On tmpfs: a disk may hang for seconds.
            state: tempfile::tempdir_in("/dev/shm").unwrap(),
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        forget_variables(&mut command);
        command
            .arg(name)
            .arg("--state-dir")
            .arg(self.state.path().join("state"))
            .arg("--cgroup-root")
            .arg(&self.root.0)
            .arg("--kubelet-dir")
            .arg(self.folder.path());
        command
    }

    pub fn guardian(&self) -> ChildGuard {
        ChildGuard::spawn("node-guardian", &mut self.command("node-guardian"))
    }

    /// Starts an agent of this cluster; its HTTP side is at `port`.
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

    pub fn sandbox(&self, namespace: &str, name: &str, uid: &str) -> Sandbox {
        let cgroup = self
            .kubepods
            .join(format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_")));
        fs::create_dir(&cgroup).unwrap();
        let volume = self
            .folder
            .path()
            .join(format!("pods/{uid}/volumes/kubernetes.io~csi/redlock"));
        fs::create_dir_all(&volume).unwrap();
        let data = r#"{"driverName":"fencing.redlock.dev"}"#;
        fs::write(volume.join("vol_data.json"), data).unwrap();
        Sandbox {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            cgroup,
            target: volume.join("mount"),
        }
    }

    /// The call of the kubelet before it starts the containers of the pod.
    pub fn publish(
        &self,
        pod: &Sandbox,
        lock: &str,
    ) -> impl Future<Output = Result<(), Status>> + Send + 'static {
        let attributes = [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.namespace", &pod.namespace),
            ("csi.storage.k8s.io/pod.name", &pod.name),
            ("csi.storage.k8s.io/pod.uid", &pod.uid),
            ("lock", lock),
        ];
        let request = NodePublishVolumeRequest {
            volume_id: format!("csi-{}", pod.uid),
            target_path: pod.target.display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            secrets: HashMap::new(),
            volume_context: attributes.map(|(name, value)| (name.into(), value.into())).into(),
        };
        call(self.sockets().csi_socket, "NodePublishVolume", request)
    }

    /// The call of the kubelet after the containers of the pod have ended.
    pub fn unpublish(&self, pod: &Sandbox) -> impl Future<Output = Result<(), Status>> + Send + 'static {
        let request = NodeUnpublishVolumeRequest {
            volume_id: format!("csi-{}", pod.uid),
            target_path: pod.target.display().to_string(),
        };
        call(self.sockets().csi_socket, "NodeUnpublishVolume", request)
    }
}

impl Sandbox {
    /// Removes what the kubelet has made, after the volume is unpublished. Its cgroup must be empty.
    pub fn remove(&self) {
        remove(&self.cgroup);
        let of_pod = self.target.ancestors().nth(4).unwrap();
        fs::remove_dir_all(of_pod).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        remove(&self.root.0.join("kubepods.slice"));
    }
}

/// Kills the processes in it, and removes it.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::write(path.join("cgroup.kill"), "1");
    eventually_blocking(BOUND, "the cgroup is removed", || fs::remove_dir(path));
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
