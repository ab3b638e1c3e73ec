//! Applies the RedisQuorums that a file declares, such as the file of the chart: at the start, whenever the
//! file changes, and when their objects are deleted.
//!
//! This module uses its own field manager. It deletes nothing, because locks may still use a quorum that the
//! file no longer names. A field that another manager has changed keeps its value, and the log names the
//! conflict.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{Patch, PatchParams, ValidationDirective},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{fs, sync::mpsc, time};

use crate::{
    api::{API_VERSION, RedisQuorum},
    targets::deepest,
};

/// Interval between reads of the file. The kubelet updates a mounted ConfigMap within a minute, and a read
/// costs nothing in comparison.
const READ_INTERVAL: Duration = Duration::from_secs(3);
/// Number of reads of the file between two attempts to apply a refused manifest: a person must change
/// something first.
const AGAIN: u32 = 2;
/// The field manager of the specs.
const MANAGER: &str = "redlock-operator-quorums";

/// The manifests of a file.
#[derive(Debug, Default)]
pub(super) struct Declared {
    file: PathBuf,
    text: String,
    all: Vec<Manifest>,
    /// The manifests that are not applied yet, each with the last reported reason.
    pending: Vec<(Manifest, String)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Manifest {
    name: String,
    object: Value,
}

impl Declared {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(super) async fn open(file: PathBuf) -> io::Result<Self> {
        let text = fs::read_to_string(&file).await?;
        let mut declared = Self {
            file,
            ..Self::default()
        };
        declared.take(text);
        Ok(declared)
    }

    /// Applies the manifests, and never returns. A manifest whose name arrives on `gone` is applied again.
    pub(super) async fn apply(mut self, client: Client, mut gone: mpsc::UnboundedReceiver<String>) {
        let quorums = Api::<RedisQuorum>::all(client);
        let mut reads = 0;
        loop {
            if reads % AGAIN == 0 {
                self.apply_pending(&quorums).await;
            }
            tokio::select! {
                () = time::sleep(READ_INTERVAL) => reads += 1,
                Some(name) = gone.recv() => {
                    if self.put_back(&name) {
                        tracing::warn!(object = %format!("RedisQuorum {name}"), file = %self.file.display(),
                            "the declared RedisQuorum was deleted; applying it again");
                        reads = 0;
                    }
                }
            }
            match fs::read_to_string(&self.file).await {
                Ok(text) if text != self.text => {
                    self.take(text);
                    reads = 0;
                }
                Ok(_) => {}
                // The file is missing for a moment while it is replaced; the manifests read before stay in force.
                Err(cause) => tracing::debug!(file = %self.file.display(), error = %cause, "cannot be read"),
            }
        }
    }

    fn take(&mut self, text: String) {
        let (manifests, problems) = parse(&text);
        for problem in problems {
            tracing::error!(file = %self.file.display(), "{problem}; the other RedisQuorums are applied");
        }
        let unreported = manifests
            .iter()
            .cloned()
            .map(|manifest| (manifest, String::new()));
        self.pending = unreported.collect();
        self.all = manifests;
        self.text = text;
    }

    /// Queues the manifest of this name and reports whether the file declares one.
    fn put_back(&mut self, name: &str) -> bool {
        let Some(manifest) = self.all.iter().find(|manifest| manifest.name == name) else {
            return false;
        };
        self.pending.retain(|(pending, _)| pending.name != name);
        self.pending.push((manifest.clone(), String::new()));
        true
    }

    async fn apply_pending(&mut self, quorums: &Api<RedisQuorum>) {
        // Without strict validation a misspelt field would silently take its default.
        let mut parameters = PatchParams::apply(MANAGER);
        parameters.field_validation = Some(ValidationDirective::Strict);
        let mut left = Vec::new();
        for (manifest, reported) in std::mem::take(&mut self.pending) {
            let patch = Patch::Apply(&manifest.object);
            let reason = match quorums.patch(&manifest.name, &parameters, &patch).await {
                Ok(_) => {
                    tracing::info!(object = %format!("RedisQuorum {}", manifest.name),
                        "RedisQuorum applied as declared");
                    continue;
                }
                Err(kube::Error::Api(status)) => status.message.clone(),
                Err(error) => deepest(&error),
            };
            if reason != reported {
                tracing::error!(object = %format!("RedisQuorum {}", manifest.name), file = %self.file.display(),
                    reason, "RedisQuorum cannot be applied; retrying");
            }
            left.push((manifest, reason));
        }
        self.pending = left;
    }
}

/// Returns the manifests of a text, and the problems of the documents that are invalid.
fn parse(text: &str) -> (Vec<Manifest>, Vec<String>) {
    let (mut manifests, mut problems) = (Vec::<Manifest>::new(), Vec::new());
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let number = index + 1;
        match Value::deserialize(document) {
            Ok(Value::Null) => {}
            Ok(object) => match manifest(object) {
                Ok(one) if manifests.iter().any(|other| other.name == one.name) => {
                    problems.push(format!(
                        "document {number}: RedisQuorum {} is declared twice: the first declaration is used",
                        one.name
                    ));
                }
                Ok(one) => manifests.push(one),
                Err(reason) => problems.push(format!("document {number}: {reason}")),
            },
            // The documents after invalid YAML cannot be read.
            Err(cause) => {
                problems.push(format!("document {number} is not valid YAML: {cause}"));
                break;
            }
        }
    }
    (manifests, problems)
}

fn manifest(mut object: Value) -> Result<Manifest, String> {
    let text = |at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if version != API_VERSION || kind != "RedisQuorum" {
        return Err(format!(
            "is a {kind:?} of {version:?}: only RedisQuorums of {API_VERSION} are applied from this file"
        ));
    }
    if name.is_empty() {
        return Err("metadata.name: is missing or not a string: give the RedisQuorum a name".to_owned());
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    Ok(Manifest { name, object })
}

/// Returns the advice for a file that cannot be read.
pub(super) fn advice(file: &Path) -> String {
    format!(
        "--quorums-file {}: give a readable file of RedisQuorum manifests",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(name: &str) -> String {
        format!(
            "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {name}}}\nspec: {{}}\n"
        )
    }

    fn parsed(text: &str) -> (Vec<String>, Vec<String>) {
        let (manifests, problems) = parse(text);
        (manifests.into_iter().map(|one| one.name).collect(), problems)
    }

    #[test]
    fn a_bad_document_leaves_the_others() {
        let (a, b) = (quorum("a"), quorum("b"));
        let text = format!(
            "---\n{a}---\nkind: Secret\n---\n{}---\n# nothing\n---\n{b}",
            a.replace("name: a", "x: y")
        );
        let (names, problems) = parsed(&text);
        assert_eq!(names, ["a", "b"]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("document 2: is a \"Secret\""),
            "{problems:?}"
        );
        assert!(
            problems[1].starts_with("document 3: metadata.name:"),
            "{problems:?}"
        );
    }

    #[test]
    fn documents_before_broken_yaml_are_used() {
        let (names, problems) = parsed(&format!("{}---\nx: [\n", quorum("a")));
        assert_eq!(names, ["a"]);
        assert!(
            problems[0].contains("document 2 is not valid YAML"),
            "{problems:?}"
        );
    }

    #[test]
    fn of_two_with_one_name_the_first_counts() {
        let (names, problems) = parsed(&format!("{}---\n{}", quorum("a"), quorum("a")));
        assert_eq!(names, ["a"]);
        assert!(problems[0].contains("declared twice"), "{problems:?}");
    }

    #[test]
    fn only_declared_fields_are_restored() {
        let mut declared = Declared::default();
        declared.take(format!("{}---\n{}", quorum("a"), quorum("b")));
        declared.pending.clear();
        assert!(declared.put_back("b") && declared.put_back("b") && !declared.put_back("c"));
        let pending: Vec<&str> = declared
            .pending
            .iter()
            .map(|(one, _)| one.name.as_str())
            .collect();
        assert_eq!(pending, ["b"]);
        declared.take(quorum("a"));
        assert!(!declared.put_back("b"), "it is declared no more");
    }

    #[test]
    fn nothing_is_declared_by_an_empty_file() {
        assert_eq!(parsed(""), (vec![], vec![]));
    }

    #[test]
    fn a_field_of_the_status_is_never_declared() {
        let (manifests, _) = parse(&format!("{}status: {{phase: x}}\n", quorum("a")));
        assert!(manifests[0].object.get("status").is_none());
    }
}
