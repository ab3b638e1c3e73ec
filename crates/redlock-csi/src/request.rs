//! Checks calls of the kubelet. The refusal of a volume in the wrong place or with a wrong field names the
//! field and the right value.

use std::{collections::HashMap, path::Path};

use tonic::Status;

use crate::{
    DRIVER_NAME,
    messages::{AccessType, NodePublishVolumeRequest, NodeUnpublishVolumeRequest},
    target::{Target, is_uid},
    volumes::{Pod, PublishRequest, UnpublishRequest},
};

/// The attribute of the volume that names the LeaderLock.
const LOCK: &str = "lock";
/// The kubelet adds its own attributes below this prefix.
const KUBELET_PREFIX: &str = "csi.storage.k8s.io/";
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
const POD_UID: &str = "csi.storage.k8s.io/pod.uid";

/// Checks a call to publish. After a refusal, the kubelet records the event FailedMount and calls again.
pub(crate) fn publish(kubelet_dir: &Path, call: NodePublishVolumeRequest) -> Result<PublishRequest, Status> {
    if call.volume_id.is_empty() {
        return Err(invalid("the volume ID is missing"));
    }
    let target = Target::parse(kubelet_dir, &call.target_path).map_err(|error| invalid(error.to_string()))?;
    match call
        .volume_capability
        .and_then(|capability| capability.access_type)
    {
        Some(AccessType::Mount(_)) => {}
        Some(AccessType::Block(_)) => {
            return Err(invalid(
                "the volume is requested as a block device: expected a file system",
            ));
        }
        None => {
            return Err(invalid(
                "the volume capability has no access type: expected mount",
            ));
        }
    }
    let context = &call.volume_context;
    if context.get(EPHEMERAL).is_none_or(|value| value != "true") {
        return Err(invalid(format!(
            "a volume of driver {DRIVER_NAME} must be inline: set it as volumes[].csi of the pod, not by a PersistentVolume"
        )));
    }
    let pod = pod(context)?;
    if pod.uid != target.uid() {
        return Err(invalid(format!(
            "the target path names pod UID {}, and the volume context names {}",
            target.uid(),
            pod.uid
        )));
    }
    let lock = lock(context)?;
    if !call.readonly {
        return Err(invalid(
            "csi.readOnly of the volume is false: set it to true, since pods read the volume and the node agent writes it",
        ));
    }
    if !call.secrets.is_empty() {
        return Err(invalid(
            "csi.nodePublishSecretRef of the volume is set: remove it, since the driver takes no secrets",
        ));
    }
    Ok(PublishRequest {
        pod,
        lock,
        volume_id: call.volume_id,
        target,
    })
}

pub(crate) fn unpublish(
    kubelet_dir: &Path,
    call: NodeUnpublishVolumeRequest,
) -> Result<UnpublishRequest, Status> {
    if call.volume_id.is_empty() {
        return Err(invalid("the volume ID is missing"));
    }
    let target = Target::parse(kubelet_dir, &call.target_path).map_err(|error| invalid(error.to_string()))?;
    Ok(UnpublishRequest {
        volume_id: call.volume_id,
        target,
    })
}

fn invalid(reason: impl Into<String>) -> Status {
    Status::invalid_argument(reason)
}

fn pod(context: &HashMap<String, String>) -> Result<Pod, Status> {
    let field = |name: &str| {
        let value = context.get(name).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| {
            Status::failed_precondition(format!(
                "the volume context has no {name}: set podInfoOnMount of CSIDriver {DRIVER_NAME} to true"
            ))
        })
    };
    let uid = field(POD_UID)?;
    if !is_uid(&uid) {
        return Err(invalid(format!(
            "the pod UID {uid:?} is invalid: expected up to 64 digits, lower case letters and '-'"
        )));
    }
    Ok(Pod {
        namespace: field(POD_NAMESPACE)?,
        name: field(POD_NAME)?,
        uid,
    })
}

fn lock(context: &HashMap<String, String>) -> Result<String, Status> {
    let mut unknown: Vec<&str> = context
        .keys()
        .map(String::as_str)
        .filter(|name| *name != LOCK && !name.starts_with(KUBELET_PREFIX))
        .collect();
    unknown.sort_unstable();
    if !unknown.is_empty() {
        return Err(invalid(format!(
            "unknown volumeAttributes {}: expected {LOCK} only",
            unknown.join(", ")
        )));
    }
    let name = context.get(LOCK).map(String::as_str).unwrap_or_default();
    if !is_name(name) {
        return Err(invalid(format!(
            "volumeAttributes.{LOCK} is {name:?}: expected the name of a LeaderLock in the namespace of the pod"
        )));
    }
    Ok(name.to_owned())
}

/// Reports whether Kubernetes allows an object of this name (RFC 1123 subdomain).
fn is_name(text: &str) -> bool {
    let label = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Empty, MountVolume, VolumeCapability};

    const UID: &str = "8f0c2b7e-4d3a-4f5e-9c1d-0123456789ab";

    fn call() -> NodePublishVolumeRequest {
        let context = [
            (EPHEMERAL, "true"),
            (POD_NAMESPACE, "shop"),
            (POD_NAME, "report-0"),
            (POD_UID, UID),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
            (LOCK, "report"),
        ];
        NodePublishVolumeRequest {
            volume_id: "csi-1".into(),
            target_path: format!("/k/pods/{UID}/volumes/kubernetes.io~csi/redlock/mount"),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            secrets: HashMap::new(),
            volume_context: context.map(|(name, value)| (name.into(), value.into())).into(),
        }
    }

    fn refusal(change: impl FnOnce(&mut NodePublishVolumeRequest)) -> (tonic::Code, String) {
        let mut call = call();
        change(&mut call);
        let status = publish(Path::new("/k"), call).unwrap_err();
        (status.code(), status.message().to_owned())
    }

    fn set(name: &'static str, value: &'static str) -> impl FnOnce(&mut NodePublishVolumeRequest) {
        move |call| {
            call.volume_context.insert(name.into(), value.into());
        }
    }

    #[test]
    fn an_inline_volume_names_pod_and_lock() {
        let request = publish(Path::new("/k"), call()).unwrap();
        assert_eq!(request.lock, "report");
        assert_eq!(
            request.pod,
            Pod {
                namespace: "shop".into(),
                name: "report-0".into(),
                uid: UID.into()
            }
        );
        assert_eq!(request.target.volume(), "redlock");
    }

    type Change = Box<dyn FnOnce(&mut NodePublishVolumeRequest)>;

    #[test]
    fn every_invalid_field_is_named_in_the_refusal() {
        let block = |call: &mut NodePublishVolumeRequest| {
            call.volume_capability = Some(VolumeCapability {
                access_type: Some(AccessType::Block(Empty {})),
            });
        };
        let cases: [(&str, Change); 14] = [
            ("volume ID", Box::new(|call| call.volume_id.clear())),
            (
                "target path is missing",
                Box::new(|call| call.target_path.clear()),
            ),
            ("/etc", Box::new(|call| call.target_path = "/etc".into())),
            (
                "volume capability",
                Box::new(|call| call.volume_capability = None),
            ),
            ("block device", Box::new(block)),
            ("must be inline", Box::new(set(EPHEMERAL, "false"))),
            ("pod UID \"../..\"", Box::new(set(POD_UID, "../.."))),
            ("names pod UID", Box::new(set(POD_UID, "another"))),
            ("volumeAttributes lokc", Box::new(set("lokc", "report"))),
            ("volumeAttributes.lock is \"\"", Box::new(set(LOCK, ""))),
            ("volumeAttributes.lock is \"a/b\"", Box::new(set(LOCK, "a/b"))),
            (
                "volumeAttributes.lock is \"\"",
                Box::new(|call| drop(call.volume_context.remove(LOCK))),
            ),
            ("csi.readOnly", Box::new(|call| call.readonly = false)),
            (
                "nodePublishSecretRef",
                Box::new(|call| drop(call.secrets.insert("a".into(), "b".into()))),
            ),
        ];
        for (named, change) in cases {
            let (code, message) = refusal(change);
            assert_eq!(code, tonic::Code::InvalidArgument, "{message}");
            assert!(message.contains(named), "{named}: {message}");
        }
    }

    #[test]
    fn a_driver_object_without_pod_info_is_named() {
        for name in [POD_NAME, POD_NAMESPACE, POD_UID] {
            let (code, message) = refusal(|call| drop(call.volume_context.remove(name)));
            assert_eq!(code, tonic::Code::FailedPrecondition);
            assert!(
                message.contains("podInfoOnMount") && message.contains(name),
                "{message}"
            );
        }
    }

    #[test]
    fn a_lock_has_the_name_of_an_object() {
        for name in ["report", "a.b-c", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a..b", "A", "a/b", "a_b", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
