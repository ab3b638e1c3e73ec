//! Shortens the manifests of `examples/standalone`, so that the demo fits into a minute.
//!
//! The copy differs from the example in the urls of the masters and in the length of the leases, and in nothing else.
//! An example with unknown contents is an error, so that the demo never shows anything but the documented manifests.

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

const QUORUM: &str = include_str!("../../../examples/standalone/quorum.yaml");
const LOCKS: &str = include_str!("../../../examples/standalone/locks.yaml");

/// The lease of every lock and the longest lease of the quorum, in seconds. Long enough for a busy machine
/// with two cores, and short enough to watch a takeover and the wait before a master without memory is sealed
/// again.
pub(super) const LEASE_SECONDS: u64 = 3;

/// The manifests of the replicas, and the names in them that the demo uses.
#[derive(Debug)]
pub(super) struct Manifests {
    /// The name and text of each file.
    pub files: [(&'static str, String); 2],
    /// The names of the masters, in the order of the urls.
    pub masters: Vec<String>,
    /// The names of the locks on the masters.
    pub locks: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("reading examples/standalone/{file}: it is not valid YAML")]
    Yaml {
        file: &'static str,
        source: serde_yaml::Error,
    },
    #[error("reading examples/standalone/{file}: {field} is not there or not what it must be")]
    Field { file: &'static str, field: &'static str },
    #[error("reading examples/standalone/{file}: {found} masters; the demo starts {wanted}")]
    Masters {
        file: &'static str,
        found: usize,
        wanted: usize,
    },
}

/// Returns the example manifests with these masters.
pub(super) fn with_masters(urls: &[String]) -> Result<Manifests, ManifestError> {
    let (quorum, masters) = quorum(urls)?;
    let (locks, names) = locks()?;
    Ok(Manifests {
        files: [("quorum.yaml", quorum), ("locks.yaml", locks)],
        masters,
        locks: names,
    })
}

fn quorum(urls: &[String]) -> Result<(String, Vec<String>), ManifestError> {
    let file = "quorum.yaml";
    let missing = |field| ManifestError::Field { file, field };
    let mut objects = documents(file, QUORUM)?;
    let spec = objects
        .first_mut()
        .and_then(|o| map(o, "spec"))
        .ok_or_else(|| missing("spec"))?;
    spec.insert("maxLeaseDurationSeconds".into(), LEASE_SECONDS.into());
    let masters = spec
        .get_mut("masters")
        .and_then(Value::as_sequence_mut)
        .ok_or_else(|| missing("spec.masters"))?;
    if masters.len() != urls.len() {
        return Err(ManifestError::Masters {
            file,
            found: masters.len(),
            wanted: urls.len(),
        });
    }
    let mut names = Vec::new();
    for (master, url) in masters.iter_mut().zip(urls) {
        let master = master.as_mapping_mut().ok_or_else(|| missing("spec.masters[]"))?;
        let name = master
            .get("name")
            .and_then(Value::as_str)
            .ok_or_else(|| missing("spec.masters[].name"))?;
        names.push(name.to_owned());
        master.insert("url".into(), url.as_str().into());
    }
    Ok((text(file, &objects)?, names))
}

fn locks() -> Result<(String, Vec<String>), ManifestError> {
    let file = "locks.yaml";
    let missing = |field| ManifestError::Field { file, field };
    let mut objects = documents(file, LOCKS)?;
    let mut names = Vec::new();
    for object in &mut objects {
        let metadata = map(object, "metadata").ok_or_else(|| missing("metadata"))?;
        let part = |key| metadata.get(key).and_then(Value::as_str);
        let own = part("namespace")
            .zip(part("name"))
            .map(|(namespace, name)| format!("{namespace}/{name}"));
        let own = own.ok_or_else(|| missing("metadata.namespace or name"))?;
        let spec = map(object, "spec").ok_or_else(|| missing("spec"))?;
        let given = spec.get("lockName").and_then(Value::as_str).map(str::to_owned);
        names.push(given.unwrap_or(own));
        spec.insert("leaseDurationSeconds".into(), LEASE_SECONDS.into());
        // These values belong to a longer lease. Without them, the operator derives them from this one.
        spec.remove("renewDeadlineSeconds");
        spec.remove("retryPeriodSeconds");
    }
    Ok((text(file, &objects)?, names))
}

fn documents(file: &'static str, text: &str) -> Result<Vec<Value>, ManifestError> {
    serde_yaml::Deserializer::from_str(text)
        .map(Value::deserialize)
        .collect::<Result<_, _>>()
        .map_err(|source| ManifestError::Yaml { file, source })
}

fn text(file: &'static str, objects: &[Value]) -> Result<String, ManifestError> {
    let texts: Result<Vec<String>, _> = objects.iter().map(serde_yaml::to_string).collect();
    texts
        .map(|texts| texts.join("---\n"))
        .map_err(|source| ManifestError::Yaml { file, source })
}

fn map<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Mapping> {
    object.get_mut(field)?.as_mapping_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(count: usize) -> Vec<String> {
        (0..count)
            .map(|n| format!("redis://127.0.0.1:{}", 20_000 + n))
            .collect()
    }

    #[test]
    fn the_examples_become_the_demos_copy() {
        let manifests = with_masters(&urls(5)).unwrap();
        assert_eq!(manifests.masters, ["m0", "m1", "m2", "m3", "m4"]);
        assert!(manifests.locks.contains(&"billing/invoice-run".to_owned()));
        assert!(manifests.locks.contains(&"billing/nightly-report".to_owned()));
        let [(_, quorum), (_, locks)] = &manifests.files;
        assert!(quorum.contains("redis://127.0.0.1:20004"), "{quorum}");
        assert!(!quorum.contains("7001"), "{quorum}");
        assert_eq!(
            locks.matches("leaseDurationSeconds: 3\n").count(),
            manifests.locks.len()
        );
        assert!(!locks.contains("renewDeadlineSeconds"), "{locks}");
    }

    #[test]
    fn another_number_of_masters_is_refused() {
        let error = with_masters(&urls(3)).unwrap_err().to_string();
        assert!(error.contains("5 masters; the demo starts 3"), "{error}");
    }
}
