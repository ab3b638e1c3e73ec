//! Finds the volumes of this driver that the kubelet has on disk. They show the fenced pods of the node, even
//! if the table is lost.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;

use crate::{directories, volume};

/// The name of the driver in a pod.
pub const DRIVER: &str = "fencing.redlock.dev";
/// The file that the kubelet writes before it calls the driver, and removes after the volume is unpublished.
const VOLUME_DATA: &str = "vol_data.json";
const CSI_VOLUMES: &str = "volumes/kubernetes.io~csi";
/// The directory that the kubelet gives to the driver, next to the data.
const MOUNT: &str = "mount";

/// A volume of this driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    pub uid: String,
    pub target: PathBuf,
}

#[derive(Debug, Error)]
#[error("reading {}: check that the kubelet directory is the one of this node", path.display())]
pub struct KubeletError {
    path: PathBuf,
    source: io::Error,
}

#[derive(Deserialize)]
struct VolumeData {
    #[serde(rename = "driverName")]
    driver: String,
}

/// Returns all volumes of the driver below the kubelet's directory.
///
/// # Errors
/// Returns an error if a directory cannot be read: the fenced pods are then unknown.
pub fn published(kubelet: &Path) -> Result<Vec<Published>, KubeletError> {
    let mut found = Vec::new();
    let pods = kubelet.join("pods");
    fs::metadata(&pods).map_err(|source| KubeletError {
        path: pods.clone(),
        source,
    })?;
    let directories = |path: &Path| {
        directories::below(path).map_err(|source| KubeletError {
            path: path.to_owned(),
            source,
        })
    };
    for pod in directories(&pods)? {
        let uid = pod.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for volume in directories(&pod.join(CSI_VOLUMES))? {
            let target = volume.join(MOUNT);
            if is_of_this_driver(&volume.join(VOLUME_DATA), &target) {
                found.push(Published {
                    uid: uid.clone(),
                    target,
                });
            }
        }
    }
    Ok(found)
}

/// Reports whether a volume belongs to this driver. If the data cannot be read, the files that the driver has
/// written into the volume decide.
fn is_of_this_driver(data: &Path, target: &Path) -> bool {
    match fs::read(data).map(|bytes| serde_json::from_slice::<VolumeData>(&bytes)) {
        Ok(Ok(data)) => data.driver == DRIVER,
        Ok(Err(_)) | Err(_) => volume::is_written(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_the_driver_are_found_and_those_of_others_are_not() {
        let root = tempfile::tempdir().unwrap();
        let add = |pod: &str, volume: &str, data: &str| {
            let path = root.path().join("pods").join(pod).join(CSI_VOLUMES).join(volume);
            fs::create_dir_all(path.join(MOUNT)).unwrap();
            fs::write(path.join(VOLUME_DATA), data).unwrap();
            path.join(MOUNT)
        };
        assert!(published(root.path()).is_err(), "no directory of a kubelet");
        let ours = add(
            "a",
            "redlock",
            r#"{"driverName":"fencing.redlock.dev","specVolID":"redlock"}"#,
        );
        add("a", "secrets", r#"{"driverName":"secrets-store.csi.k8s.io"}"#);
        let torn = add("b", "redlock", "{");
        add("c", "other", "{");
        fs::create_dir_all(root.path().join("pods/d/volumes/kubernetes.io~projected/x")).unwrap();
        fs::write(torn.join("lock"), "team/report").unwrap();
        fs::write(torn.join("valid-until-boot-milliseconds"), "1").unwrap();
        let published = published(root.path()).unwrap();
        let mut found: Vec<_> = published
            .iter()
            .map(|p| (p.uid.as_str(), p.target.clone()))
            .collect();
        found.sort();
        assert_eq!(found, [("a", ours), ("b", torn)]);
    }
}
