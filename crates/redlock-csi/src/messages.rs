//! Defines the messages of CSI v1 and of the plugin registration of the kubelet, with the fields that are
//! used. Prost skips all other fields.
//!
//! The numbers are those of csi.proto (container-storage-interface/spec, v1) and of
//! k8s.io/kubelet/pkg/apis/pluginregistration/v1.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// A message whose fields are not used.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct GetPluginInfoResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub vendor_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProbeResponse {
    /// A `google.protobuf.BoolValue`.
    #[prost(message, optional, tag = "1")]
    pub ready: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeGetInfoResponse {
    #[prost(string, tag = "1")]
    pub node_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodePublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "4")]
    pub target_path: String,
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub readonly: bool,
    #[prost(map = "string, string", tag = "7")]
    pub secrets: HashMap<String, String>,
    #[prost(map = "string, string", tag = "8")]
    pub volume_context: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct VolumeCapability {
    #[prost(oneof = "AccessType", tags = "1, 2")]
    pub access_type: Option<AccessType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AccessType {
    #[prost(message, tag = "1")]
    Block(Empty),
    #[prost(message, tag = "2")]
    Mount(MountVolume),
}

#[derive(Clone, PartialEq, Message)]
pub struct MountVolume {
    #[prost(string, tag = "1")]
    pub fs_type: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeUnpublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub target_path: String,
}

/// The information that the kubelet reads from the registration socket.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// Named `type` in the protocol.
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub error: String,
}
