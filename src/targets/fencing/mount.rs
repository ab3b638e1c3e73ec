//! Decides whether a pod, or the pods of a template, wait for the lock and are frozen without it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The CSI driver of the node agent, which publishes a volume only while the cluster holds the lock.
pub(super) const DRIVER: &str = "fencing.redlock.dev";
/// The runtime classes whose containers are processes of the node, in the cgroup of their pod. A runtime that runs a pod in
/// a virtual machine or by a kernel of its own may keep the processes from a freeze.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeClasses(BTreeSet<String>);

impl FromIterator<String> for RuntimeClasses {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().filter(|name| !name.is_empty()).collect())
    }
}

impl RuntimeClasses {
    /// Returns the runtime class of a pod if it is not one of these. A pod without one has the runtime of the node.
    pub(crate) fn refused<'a>(&self, of_pod: Option<&'a str>) -> Option<&'a str> {
        of_pod.filter(|name| !name.is_empty() && !self.0.contains(*name))
    }
}

/// The volume attribute that names the LeaderLock, in the namespace of the pod.
const LOCK: &str = "lock";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    runtime_class_name: Option<String>,
    volumes: Option<Vec<Volume>>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Volume {
    name: String,
    csi: Option<Csi>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: String,
    read_only: Option<bool>,
    volume_attributes: Option<BTreeMap<String, String>>,
}

impl Csi {
    fn lock(&self) -> Option<&str> {
        Some(self.volume_attributes.as_ref()?.get(LOCK)?)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    volume_mounts: Option<Vec<Mount>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mount {
    name: String,
    sub_path: Option<String>,
    sub_path_expr: Option<String>,
}

impl Mount {
    /// Reports whether the container gets a part of the volume. Such a mount keeps the first values, since each file of the
    /// volume is replaced as a whole.
    fn is_of_a_part(&self) -> bool {
        let paths = [&self.sub_path, &self.sub_path_expr];
        paths.into_iter().flatten().any(|path| !path.is_empty())
    }
}

/// The reason why pods are not fenced for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfenced {
    /// The object has no pod template at the paths of the built-in kinds.
    NoTemplate,
    NoVolume,
    /// The number of volumes of the driver, which accepts one for each pod.
    SeveralVolumes(usize),
    /// The lock that the volume names; empty if it names none.
    OtherLock(String),
    Writable,
    /// No container mounts the volume of this name, so the kubelet ignores it.
    NotMounted(String),
    /// Only init containers mount the volume of this name.
    OnlyInitContainers(String),
    /// A container mounts the volume of this name with `subPath` or `subPathExpr`.
    SubPath(String),
    /// This runtime class is not known to keep the processes in the cgroup of the pod.
    RuntimeClass(String),
}

impl PodSpec {
    fn volumes(&self) -> impl Iterator<Item = (&str, &Csi)> {
        let volumes = self.volumes.iter().flatten();
        let ours = volumes.filter_map(|volume| Some((&*volume.name, volume.csi.as_ref()?)));
        ours.filter(|(_, csi)| csi.driver == DRIVER)
    }

    /// Returns the locks that volumes of the pod name, mounted or not.
    pub(super) fn locks(&self) -> impl Iterator<Item = &str> {
        self.volumes().filter_map(|(_, csi)| csi.lock())
    }
}

fn mounts<'a>(containers: Option<&'a Vec<Container>>, volume: &'a str) -> impl Iterator<Item = &'a Mount> {
    let mounts = containers
        .into_iter()
        .flatten()
        .flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.filter(move |mount| mount.name == volume)
}

/// Checks that the node agent fences pods of this spec for the lock.
pub(super) fn check(spec: &PodSpec, lock: &str, allowed: &RuntimeClasses) -> Result<(), Unfenced> {
    if let Some(class) = allowed.refused(spec.runtime_class_name.as_deref()) {
        return Err(Unfenced::RuntimeClass(class.to_owned()));
    }
    let ours: Vec<(&str, &Csi)> = spec.volumes().collect();
    let (volume, csi) = match ours[..] {
        [] => return Err(Unfenced::NoVolume),
        [one] => one,
        _ => return Err(Unfenced::SeveralVolumes(ours.len())),
    };
    if csi.lock() != Some(lock) {
        return Err(Unfenced::OtherLock(csi.lock().unwrap_or_default().to_owned()));
    }
    if csi.read_only != Some(true) {
        return Err(Unfenced::Writable);
    }
    let of_containers = || mounts(spec.containers.as_ref(), volume);
    let of_init_containers = || mounts(spec.init_containers.as_ref(), volume);
    if of_containers()
        .chain(of_init_containers())
        .any(Mount::is_of_a_part)
    {
        return Err(Unfenced::SubPath(volume.to_owned()));
    }
    if of_containers().next().is_some() {
        return Ok(());
    }
    let name = volume.to_owned();
    Err(if of_init_containers().next().is_some() {
        Unfenced::OnlyInitContainers(name)
    } else {
        Unfenced::NotMounted(name)
    })
}

impl Unfenced {
    /// Returns the reason and the lines to add, for a target of this lock.
    pub(super) fn advice(&self, lock: &str) -> String {
        let volume = format!(
            "`volumes: [{{name: redlock, csi: {{driver: {DRIVER}, readOnly: true, volumeAttributes: {{lock: {lock}}}}}}}]`"
        );
        let mount = |volume: &str| {
            format!("`volumeMounts: [{{name: {volume}, mountPath: /run/redlock, readOnly: true}}]`")
        };
        match self {
            Self::NoTemplate => {
                "it has no pod template at spec.template or spec.jobTemplate, and it is unknown whether its pods are \
                 fenced: use a kind with a pod template, or a lock with fencing: None"
                    .to_owned()
            }
            Self::NoVolume => format!(
                "its pods would run without the lock: add to its pod template {volume}, and to a container {}",
                mount("redlock")
            ),
            Self::SeveralVolumes(count) => format!(
                "its pod template has {count} volumes of the driver {DRIVER}, which takes one for each pod: keep {volume}"
            ),
            Self::OtherLock(other) if other.is_empty() => {
                format!("the volume of the driver {DRIVER} names no lock: write {volume}")
            }
            Self::OtherLock(other) => format!(
                "the volume of the driver {DRIVER} names lock {other:?}, and this target belongs to lock {lock:?}: write \
                 {volume}"
            ),
            Self::Writable => format!(
                "the volume of the driver {DRIVER} is writable, which the driver refuses: write {volume}"
            ),
            Self::NotMounted(name) => format!(
                "no container mounts the volume {name:?}, and the kubelet ignores a volume that none mounts: add to a \
                 container {}",
                mount(name)
            ),
            Self::RuntimeClass(name) => format!(
                "its pods have runtimeClassName {name:?}, and a freeze may not reach the processes of such a runtime: remove it, or \
                 add it to fencing.runtimeClasses of the chart if its containers are processes in the cgroup of their pod"
            ),
            Self::SubPath(name) => format!(
                "a container mounts the volume {name:?} with subPath or subPathExpr, and would never see a later token: mount the \
                 whole volume by {}",
                mount(name)
            ),
            Self::OnlyInitContainers(name) => format!(
                "only an init container mounts the volume {name:?}: add to a container {}",
                mount(name)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(volumes: &Value, containers: &Value, init: &Value) -> PodSpec {
        let spec = json!({"volumes": volumes, "containers": containers, "initContainers": init});
        serde_json::from_value(spec).unwrap()
    }

    fn volume(name: &str, lock: &Value) -> Value {
        let attributes = json!({"lock": lock});
        json!({"name": name, "csi": {"driver": DRIVER, "readOnly": true, "volumeAttributes": attributes}})
    }

    #[test]
    fn pods_are_fenced_by_one_mounted_volume_of_their_lock() {
        let report = volume("redlock", &json!("report"));
        let mounted =
            json!([{"name": "log"}, {"name": "app", "volumeMounts": [{"name": "tmp"}, {"name": "redlock"}]}]);
        let bare = json!([{"name": "app"}]);
        let tmp = json!({"name": "tmp", "emptyDir": {}});
        let mut writable = report.clone();
        writable["csi"]["readOnly"] = json!(false);
        let mut unsaid = report.clone();
        unsaid["csi"] = json!({"driver": DRIVER});
        let mut foreign = report.clone();
        foreign["csi"]["driver"] = json!("secrets.example");
        let none = json!(null);
        let not_mounted = Unfenced::NotMounted("redlock".into());
        let other = |lock: &str| Unfenced::OtherLock(lock.into());
        for (what, volumes, containers, init, wanted) in [
            ("mounted", json!([tmp, report]), &mounted, &none, Ok(())),
            ("by both", json!([report]), &mounted, &mounted, Ok(())),
            ("no volumes", json!(null), &bare, &none, Err(Unfenced::NoVolume)),
            (
                "others",
                json!([tmp, foreign]),
                &mounted,
                &none,
                Err(Unfenced::NoVolume),
            ),
            ("not mounted", json!([report]), &bare, &none, Err(not_mounted)),
            (
                "init container only",
                json!([report]),
                &bare,
                &mounted,
                Err(Unfenced::OnlyInitContainers("redlock".into())),
            ),
            (
                "another lock",
                json!([volume("redlock", &json!("billing"))]),
                &mounted,
                &none,
                Err(other("billing")),
            ),
            ("no lock", json!([unsaid]), &mounted, &none, Err(other(""))),
            (
                "writable",
                json!([writable]),
                &mounted,
                &none,
                Err(Unfenced::Writable),
            ),
            (
                "two volumes",
                json!([report, volume("second", &json!("report"))]),
                &mounted,
                &none,
                Err(Unfenced::SeveralVolumes(2)),
            ),
        ] {
            let found = check(
                &spec(&volumes, containers, init),
                "report",
                &RuntimeClasses::default(),
            );
            assert_eq!(found, wanted, "{what}");
        }
    }

    #[test]
    fn a_volume_of_which_a_container_mounts_a_part_does_not_fence() {
        let volumes = json!([volume("redlock", &json!("report"))]);
        let with = |field: &str, value: &str| {
            let mut mount = json!({"name": "redlock"});
            mount[field] = json!(value);
            json!([{"name": "app", "volumeMounts": [{"name": "redlock"}, mount]}])
        };
        let whole =
            json!([{"name": "app", "volumeMounts": [{"name": "redlock"}, {"name": "tmp", "subPath": "x"}]}]);
        let part = Err(Unfenced::SubPath("redlock".into()));
        for (containers, init, wanted) in [
            (with("subPath", "token"), json!(null), part.clone()),
            (with("subPathExpr", "$(POD_NAME)"), json!(null), part.clone()),
            (whole.clone(), with("subPath", ".token"), part),
            (with("subPath", ""), json!(null), Ok(())),
            (whole.clone(), whole, Ok(())),
        ] {
            let spec = spec(&volumes, &containers, &init);
            let found = check(&spec, "report", &RuntimeClasses::default());
            assert_eq!(found, wanted, "{containers} {init}");
        }
    }

    #[test]
    fn a_runtime_class_is_fenced_only_where_it_is_allowed() {
        let volumes = json!([volume("redlock", &json!("report"))]);
        let mounted = json!([{"name": "app", "volumeMounts": [{"name": "redlock"}]}]);
        let with_class = |class: Value| {
            let mut spec = json!({"volumes": volumes, "containers": mounted});
            spec["runtimeClassName"] = class;
            serde_json::from_value::<PodSpec>(spec).unwrap()
        };
        let allowed: RuntimeClasses = ["nvidia".to_owned(), String::new()].into_iter().collect();
        let kata = Err(Unfenced::RuntimeClass("kata".into()));
        for (class, allowed, wanted) in [
            (json!(null), &RuntimeClasses::default(), Ok(())),
            (json!(""), &RuntimeClasses::default(), Ok(())),
            (json!("kata"), &allowed, kata),
            (json!("nvidia"), &allowed, Ok(())),
            (
                json!("nvidia"),
                &RuntimeClasses::default(),
                Err(Unfenced::RuntimeClass("nvidia".into())),
            ),
        ] {
            assert_eq!(
                check(&with_class(class.clone()), "report", allowed),
                wanted,
                "{class}"
            );
        }
    }

    #[test]
    fn a_volume_that_is_not_mounted_names_its_lock_nevertheless() {
        let both = json!([volume("a", &json!("report")), volume("b", &json!("billing"))]);
        let spec = spec(&both, &json!([]), &json!(null));
        assert_eq!(spec.locks().collect::<Vec<_>>(), ["report", "billing"]);
    }

    #[test]
    fn the_advice_has_the_lines_to_paste() {
        let text = Unfenced::NoVolume.advice("report");
        assert!(
            text.contains(
                "`volumes: [{name: redlock, csi: {driver: fencing.redlock.dev, readOnly: true, volumeAttributes: {lock: \
                 report}}}]`"
            ),
            "{text}"
        );
        assert!(
            text.contains("`volumeMounts: [{name: redlock, mountPath: /run/redlock, readOnly: true}]`"),
            "{text}"
        );
        let text = Unfenced::NotMounted("fence".into()).advice("report");
        assert!(text.contains("name: fence, mountPath"), "{text}");
        for unfenced in [
            Unfenced::NoTemplate,
            Unfenced::SeveralVolumes(2),
            Unfenced::OtherLock(String::new()),
            Unfenced::OtherLock("x".into()),
            Unfenced::Writable,
            Unfenced::OnlyInitContainers("x".into()),
            Unfenced::SubPath("x".into()),
            Unfenced::RuntimeClass("x".into()),
        ] {
            let text = unfenced.advice("report");
            assert!(text.contains(": "), "{unfenced:?}: {text}");
        }
    }
}
