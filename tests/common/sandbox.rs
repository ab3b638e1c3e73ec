//! Creates the parts of a pod that the kubelet and the runtime create on a node.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redlock_testkit::{ChildGuard, eventually_blocking};

const BOUND: Duration = Duration::from_secs(60);
const KUBEPODS: &str = "kubepods.slice";

/// A pod before the call to publish its volume: its cgroup, and the data of the volume on disk.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub uid: String,
    pub cgroup: PathBuf,
    /// The target directory that the driver gets. It does not exist yet.
    pub target: PathBuf,
}

impl Sandbox {
    /// Creates a pod. `node` is the cgroup above those of all pods, `kubelet` the directory of the kubelet.
    pub fn make(node: &Path, kubelet: &Path, uid: &str) -> Self {
        let kubepods = node.join(KUBEPODS).join("kubepods-burstable.slice");
        fs::create_dir_all(&kubepods).unwrap();
        let cgroup = kubepods.join(format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_")));
        fs::create_dir(&cgroup).unwrap();
        let volume = kubelet.join(format!("pods/{uid}/volumes/kubernetes.io~csi/redlock"));
        fs::create_dir_all(&volume).unwrap();
        let data = r#"{"driverName":"fencing.redlock.dev"}"#;
        fs::write(volume.join("vol_data.json"), data).unwrap();
        Self {
            uid: uid.to_owned(),
            cgroup,
            target: volume.join("mount"),
        }
    }

    /// Removes both after the volume is unpublished. Kills processes that are left in the cgroup.
    pub fn remove(&self) {
        remove(&self.cgroup);
        let of_pod = self.target.ancestors().nth(4).unwrap();
        fs::remove_dir_all(of_pod).unwrap();
    }
}

/// Starts a program in a new cgroup of a pod, as the runtime starts a container.
pub fn start_container(pod: &Path, name: &str, program: &[&OsStr]) -> ChildGuard {
    let container = pod.join(name);
    fs::create_dir(&container).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$1\"; shift; exec \"$@\"", "sh"])
        .arg(container.join("cgroup.procs"))
        .args(program);
    ChildGuard::spawn("container", &mut command)
}

/// Kills the processes of all pods, and removes their cgroups.
pub fn remove_pods(node: &Path) {
    let kubepods = node.join(KUBEPODS);
    if kubepods.exists() {
        remove(&kubepods);
    }
}

fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::write(path.join("cgroup.kill"), "1");
    eventually_blocking(BOUND, "the cgroup is removed", || fs::remove_dir(path));
}
