//! Checks that the target path of a volume is one that the kubelet creates.

use std::path::{Component, Path, PathBuf};

/// The directory of a volume: `pods/<UID>/volumes/kubernetes.io~csi/<name>/mount` in the directory of the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    path: PathBuf,
    uid: String,
    volume: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("the target path is missing")]
    Missing,
    #[error(
        "the target path {path} is not that of a CSI volume in {kubelet}: expected {kubelet}/pods/UID/volumes/kubernetes.io~csi/NAME/mount; compare the kubeletDir of the chart with --root-dir of the kubelet"
    )]
    Elsewhere { path: String, kubelet: String },
    #[error(
        "the pod UID {uid:?} in the target path is invalid: expected up to 64 digits, lower case letters and '-'"
    )]
    Uid { uid: String },
}

impl Target {
    pub(crate) fn parse(kubelet_dir: &Path, text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Missing);
        }
        let elsewhere = || TargetError::Elsewhere {
            path: text.to_owned(),
            kubelet: kubelet_dir.display().to_string(),
        };
        let path = Path::new(text);
        let inside = path.strip_prefix(kubelet_dir).map_err(|_| elsewhere())?;
        let names: Option<Vec<&str>> = inside
            .components()
            .map(|component| match component {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        let names = names.ok_or_else(elsewhere)?;
        let ["pods", uid, "volumes", "kubernetes.io~csi", volume, "mount"] = names[..] else {
            return Err(elsewhere());
        };
        if !is_uid(uid) {
            return Err(TargetError::Uid { uid: uid.to_owned() });
        }
        Ok(Self {
            // Without repeated slashes, because calls for one volume are compared by the path.
            path: kubelet_dir.join(inside.components().collect::<PathBuf>()),
            uid: uid.to_owned(),
            volume: volume.to_owned(),
        })
    }

    /// Returns the directory that containers see.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the UID of the pod.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the name of the volume in the pod.
    pub fn volume(&self) -> &str {
        &self.volume
    }
}

/// Reports whether this is the UID of an object, or the hash that names a static pod. The UID becomes part of
/// the name of a cgroup.
pub(crate) fn is_uid(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8f0c2b7e-4d3a-4f5e-9c1d-0123456789ab";

    fn parse(text: &str) -> Result<Target, TargetError> {
        Target::parse(Path::new("/var/lib/kubelet"), text)
    }

    #[test]
    fn a_target_of_the_kubelet_names_pod_and_volume() {
        let text = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/redlock/mount");
        let target = parse(&text).unwrap();
        assert_eq!((target.uid(), target.volume()), (UID, "redlock"));
        assert_eq!(target.path(), Path::new(&text));
        let slashes = text.replace("/pods/", "//pods/./");
        assert_eq!(parse(&slashes).unwrap(), target);
    }

    #[test]
    fn a_target_outside_of_the_volumes_of_the_kubelet_is_refused() {
        for text in [
            "relative".to_owned(),
            "/etc".to_owned(),
            "/var/lib/kubelet".to_owned(),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/redlock"),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/redlock/mount/more"),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/redlock/mount"),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/../mount"),
            format!("/var/lib/kubelet/pods/../pods/{UID}/volumes/kubernetes.io~csi/redlock/mount"),
            format!("/var/lib/kubelet-other/pods/{UID}/volumes/kubernetes.io~csi/redlock/mount"),
        ] {
            assert!(
                matches!(parse(&text), Err(TargetError::Elsewhere { .. })),
                "{text}"
            );
        }
        assert_eq!(parse(""), Err(TargetError::Missing));
    }

    #[test]
    fn a_uid_has_no_other_characters() {
        for uid in ["A", "a.b", "a_b", "é", &"a".repeat(65)] {
            let text = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/redlock/mount");
            assert!(matches!(parse(&text), Err(TargetError::Uid { .. })), "{uid}");
        }
    }
}
