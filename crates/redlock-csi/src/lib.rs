//! Serves the CSI driver `fencing.redlock.dev` to the kubelet: an inline volume whose publish call gates the
//! start of a pod.
//!
//! The kubelet calls NodePublishVolume after it has created the cgroup of a pod and before it starts a
//! container. [`serve`] checks each call and passes it to [`Volumes`], which answers when the pod may start.
//! The volume is a plain directory below the directory of the kubelet; nothing is mounted. The messages have
//! only the fields that are used.

mod calls;
pub mod messages;
mod node;
mod registration;
mod request;
mod rpc;
mod server;
mod sockets;
mod target;
mod volumes;

pub use server::{Options, ServeError, serve};
pub use sockets::SocketError;
pub use target::Target;
pub use volumes::{Pod, PublishError, PublishRequest, UnpublishError, UnpublishRequest, Volumes};

/// The name of the driver: the value of `csi.driver` of a volume, and the name of the CSIDriver object.
pub const DRIVER_NAME: &str = "fencing.redlock.dev";
