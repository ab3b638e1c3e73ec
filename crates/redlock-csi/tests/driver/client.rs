//! Makes the calls of a kubelet, in a separate directory.

use std::{
    collections::HashMap,
    fs,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use redlock_csi::messages::{
    AccessType, Empty, MountVolume, NodePublishVolumeRequest, NodeUnpublishVolumeRequest, ProbeResponse,
    VolumeCapability,
};
use redlock_csi::{DRIVER_NAME, Options, ServeError, Volumes, serve};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

/// Longer than each answer takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

pub struct Kubelet {
    directory: Arc<TempDir>,
    shutdown: CancellationToken,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
}

/// An inline volume of a pod.
#[derive(Debug, Clone)]
pub struct Volume {
    pub target: PathBuf,
    pub attributes: HashMap<String, String>,
}

impl Kubelet {
    pub async fn start(volumes: impl Volumes) -> Self {
        let kubelet = Self::serve(Arc::new(tempfile::tempdir().unwrap()), volumes);
        kubelet.until_ready_is(true).await;
        kubelet
    }

    /// Serves on the same sockets, as the next node agent does during an update.
    pub fn restart_beside(&self, volumes: impl Volumes) -> Self {
        let sockets = Options::new("node-1", self.directory());
        for socket in [&sockets.csi_socket, &sockets.registration_socket] {
            assert!(socket.exists());
        }
        Self::serve(self.directory.clone(), volumes)
    }

    fn serve(directory: Arc<TempDir>, volumes: impl Volumes) -> Self {
        let shutdown = CancellationToken::new();
        let options = Options::new("node-1", directory.path());
        let serving = tokio::spawn(serve(volumes, options, shutdown.clone()));
        Self {
            directory,
            shutdown,
            serving: Some(serving),
        }
    }

    pub async fn until_ready_is(&self, ready: bool) {
        let call = || async {
            let probe: ProbeResponse = self.identity("Probe", Empty {}).await?;
            let same = probe.ready == Some(ready);
            same.then_some(Empty {})
                .ok_or_else(|| Status::unknown(format!("{probe:?}")))
        };
        eventually(call).await;
    }

    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        let serving = self.serving.take().unwrap();
        serving.await.unwrap().unwrap();
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Prepares the directories and the record of a volume as the kubelet does before it publishes the volume.
    pub fn volume(&self, uid: &str, name: &str) -> Volume {
        let volumes = self
            .directory()
            .join("pods")
            .join(uid)
            .join("volumes/kubernetes.io~csi");
        let volume = volumes.join(name);
        fs::create_dir_all(&volume).unwrap();
        let data = format!(r#"{{"driverName":"{DRIVER_NAME}","specVolID":"{name}","volumeHandle":"csi-1"}}"#);
        fs::write(volume.join("vol_data.json"), data).unwrap();
        let attributes = [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.namespace", "shop"),
            ("csi.storage.k8s.io/pod.name", "report-0"),
            ("csi.storage.k8s.io/pod.uid", uid),
            ("lock", "report"),
        ];
        Volume {
            target: volume.join("mount"),
            attributes: attributes.map(|(name, value)| (name.into(), value.into())).into(),
        }
    }

    pub async fn publish(&self, volume: &Volume) -> Result<Empty, Status> {
        publish(self.directory.clone(), volume.clone()).await
    }

    pub fn publish_detached(&self, volume: &Volume) -> JoinHandle<Result<Empty, Status>> {
        tokio::spawn(publish(self.directory.clone(), volume.clone()))
    }

    pub async fn until_published(&self, volume: &Volume) {
        eventually(|| self.publish(volume)).await;
    }

    pub async fn unpublish(&self, volume: &Volume) -> Result<Empty, Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: "csi-1".into(),
            target_path: volume.target.display().to_string(),
        };
        self.node("NodeUnpublishVolume", request).await
    }

    pub async fn identity<Q, A>(&self, method: &str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let options = Options::new("node-1", self.directory());
        call(
            &options.csi_socket,
            &format!("/csi.v1.Identity/{method}"),
            request,
        )
        .await
    }

    pub async fn node<Q, A>(&self, method: &str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let options = Options::new("node-1", self.directory());
        call(&options.csi_socket, &format!("/csi.v1.Node/{method}"), request).await
    }

    pub async fn register<Q, A>(&self, method: &str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let options = Options::new("node-1", self.directory());
        let path = format!("/pluginregistration.Registration/{method}");
        let authority = authority(&options.registration_socket);
        call_as(&options.registration_socket, &authority, &path, request).await
    }
}

async fn publish(directory: Arc<TempDir>, volume: Volume) -> Result<Empty, Status> {
    let options = Options::new("node-1", directory.path());
    let request = NodePublishVolumeRequest {
        volume_id: "csi-1".into(),
        target_path: volume.target.display().to_string(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }),
        readonly: true,
        secrets: HashMap::new(),
        volume_context: volume.attributes,
    };
    call(&options.csi_socket, "/csi.v1.Node/NodePublishVolume", request).await
}

/// Returns the authority that the plugin manager of the kubelet sends: grpc-go encodes the path of the
/// socket.
fn authority(socket: &Path) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]@".contains(&byte);
    let encoded = socket.to_str().unwrap().bytes().map(|byte| match byte {
        byte if kept(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

/// Calls a method like the CSI client of the kubelet.
async fn call<Q, A>(socket: &Path, path: &str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    call_as(socket, "localhost", path, request).await
}

/// Opens one connection for each call, as the kubelet does.
async fn call_as<Q, A>(socket: &Path, authority: &str, path: &str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let origin = format!("http://{authority}").parse();
    let origin = origin.map_err(|error| Status::internal(format!("the authority {authority}: {error}")))?;
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .unwrap()
        .origin(origin);
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let channel = endpoint.connect().await.map_err(unavailable)?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(unavailable)?;
    let path = path.parse().unwrap();
    let answer = client.unary(Request::new(request), path, ProstCodec::<Q, A>::default());
    let answer = timeout(BOUND, answer).await;
    let answer = answer.map_err(|_| Status::deadline_exceeded("no answer"))??;
    Ok(answer.into_inner())
}

async fn eventually<F: Future<Output = Result<Empty, Status>>>(attempt: impl Fn() -> F) {
    let mut last = None;
    for _ in 0..1000 {
        match attempt().await {
            Ok(Empty {}) => return,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("10 s passed: {last:?}");
}
