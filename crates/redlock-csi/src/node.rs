//! Implements the services Identity and Node of CSI: checks calls, keeps them apart, and creates the
//! directories of volumes.

use std::{
    fs::{self, DirBuilder, Permissions},
    future::Future,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body};
use tracing::{info, warn};

use crate::{
    DRIVER_NAME,
    calls::{Call, Calls},
    messages::{
        Empty, GetPluginInfoResponse, NodeGetInfoResponse, NodePublishVolumeRequest,
        NodeUnpublishVolumeRequest, ProbeResponse,
    },
    request,
    rpc::{Answer, Methods, unary, unimplemented},
    target::Target,
    volumes::{PublishError, PublishRequest, UnpublishRequest, Volumes},
};

/// The mode of the directory: containers of any user read the files.
const MODE: u32 = 0o755;
/// The file that the kubelet writes next to the directory of each CSI volume before it publishes the volume.
const VOLUME_DATA: &str = "vol_data.json";

#[derive(Debug)]
pub(crate) struct Node<V> {
    pub(crate) volumes: V,
    pub(crate) node_name: String,
    pub(crate) kubelet_dir: PathBuf,
    pub(crate) calls: Arc<Calls>,
    /// Owns the calls in progress: they continue even if the kubelet gives them up.
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

impl<V: Volumes> Methods for Node<V> {
    async fn call(self: Arc<Self>, request: http::Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/csi.v1.Identity/GetPluginInfo" => unary(request, |_: Empty| async { Ok(plugin_info()) }).await,
            // The driver has no controller, and the empty lists name no capability.
            "/csi.v1.Identity/GetPluginCapabilities" | "/csi.v1.Node/NodeGetCapabilities" => {
                unary(request, |_: Empty| async { Ok(Empty {}) }).await
            }
            "/csi.v1.Identity/Probe" => {
                let ready = Some(self.volumes.ready());
                unary(
                    request,
                    move |_: Empty| async move { Ok(ProbeResponse { ready }) },
                )
                .await
            }
            "/csi.v1.Node/NodeGetInfo" => {
                let node_id = self.node_name.clone();
                unary(request, |_: Empty| async { Ok(NodeGetInfoResponse { node_id }) }).await
            }
            "/csi.v1.Node/NodePublishVolume" => unary(request, |call| self.publish(call)).await,
            "/csi.v1.Node/NodeUnpublishVolume" => unary(request, |call| self.unpublish(call)).await,
            path => unimplemented(path),
        }
    }
}

fn plugin_info() -> GetPluginInfoResponse {
    GetPluginInfoResponse {
        name: DRIVER_NAME.to_owned(),
        vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

impl<V: Volumes> Node<V> {
    async fn publish(self: Arc<Self>, call: NodePublishVolumeRequest) -> Result<Empty, Status> {
        let request = request::publish(&self.kubelet_dir, call)?;
        let Some(call) = self.calls.begin(request.target.path()) else {
            return Err(Status::aborted(format!(
                "volume {} is published by an earlier call, which continues",
                request.volume_id
            )));
        };
        let node = self.clone();
        self.own(async move { node.publish_checked(request, &call).await })
            .await
    }

    async fn publish_checked(&self, request: PublishRequest, call: &Call) -> Result<Empty, Status> {
        refuse_second(&request.target)?;
        let target = request.target.path().to_owned();
        let pod = format!("{}/{}", request.pod.namespace, request.pod.name);
        let outcome = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return Err(Status::unavailable(
                "the node agent is shutting down: the kubelet retries the call with the next node agent",
            )),
            // The caller unpublishes the volume.
            () = call.cancelled() => return Err(Status::aborted("the volume was unpublished during the call")),
            outcome = self.volumes.publish(request) => outcome,
        };
        match outcome {
            Ok(()) => {
                create(&target)?;
                info!(pod, "the volume is published");
                Ok(Empty {})
            }
            Err(error) => {
                warn!(pod, %error, "the volume is not published");
                Err(refusal(error))
            }
        }
    }

    async fn unpublish(self: Arc<Self>, call: NodeUnpublishVolumeRequest) -> Result<Empty, Status> {
        let request = request::unpublish(&self.kubelet_dir, call)?;
        let node = self.clone();
        self.own(async move { node.unpublish_checked(request).await })
            .await
    }

    async fn unpublish_checked(&self, request: UnpublishRequest) -> Result<Empty, Status> {
        let target = request.target.path().to_owned();
        let uid = request.target.uid().to_owned();
        let _call = self.calls.replace(&target).await;
        let forgotten = self.volumes.unpublish(request).await;
        forgotten.map_err(|error| Status::internal(error.to_string()))?;
        info!(uid, "the volume is unpublished");
        Ok(Empty {})
    }

    /// Runs the call to its end, whether or not the kubelet waits for it.
    async fn own(
        &self,
        call: impl Future<Output = Result<Empty, Status>> + Send + 'static,
    ) -> Result<Empty, Status> {
        let task = self.tasks.spawn(call);
        task.await
            .unwrap_or_else(|error| Err(Status::internal(format!("the call failed: {error}"))))
    }
}

fn refusal(error: PublishError) -> Status {
    match error {
        PublishError::Invalid(reason) => Status::invalid_argument(reason),
        PublishError::NotYet(reason) => Status::failed_precondition(reason),
        PublishError::Unavailable(reason) => Status::unavailable(reason),
    }
}

/// Creates the directory of a volume. A waiting pod has no directory: a directory that a killed process left
/// could not be distinguished from that of a started pod.
fn create(target: &Path) -> Result<(), Status> {
    let created = match DirBuilder::new().mode(MODE).create(target) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        // The mode of a new directory depends on the umask.
        _ => fs::set_permissions(target, Permissions::from_mode(MODE)),
    };
    created.map_err(|error| {
        Status::unavailable(format!(
            "the directory {} of the volume could not be created: {error}",
            target.display()
        ))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeData {
    driver_name: String,
}

/// Refuses a second volume, because a pod follows one lock. The kubelet records each volume before it
/// publishes the volume, so one of two simultaneous calls sees the record of the other.
fn refuse_second(target: &Target) -> Result<(), Status> {
    let other = other_volume(target).map_err(|error| {
        Status::unavailable(format!(
            "the volumes of pod {} could not be read: {error}",
            target.uid()
        ))
    })?;
    match other {
        None => Ok(()),
        Some(other) => Err(Status::invalid_argument(format!(
            "the pod has two volumes of driver {DRIVER_NAME}, {} and {other}: keep one, since a pod follows one lock",
            target.volume()
        ))),
    }
}

/// Finds another volume of this driver in the directory of the pod. A record that is not JSON is still being
/// written, and the call for its volume follows later.
fn other_volume(target: &Target) -> io::Result<Option<String>> {
    let Some(volumes) = target.path().ancestors().nth(2) else {
        return Ok(None);
    };
    let entries = match fs::read_dir(volumes) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name == target.volume() {
            continue;
        }
        let data = match fs::read(entry.path().join(VOLUME_DATA)) {
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => continue,
            data => data?,
        };
        if serde_json::from_slice::<VolumeData>(&data).is_ok_and(|data| data.driver_name == DRIVER_NAME) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
