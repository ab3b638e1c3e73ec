//! Describes the last writes of a cluster, for a person who reads a failure.

use redlock_world::kubernetes::{ApiServer, CommittedWrite, ResourceId};
use serde_json::Value;

use super::manifests::OPERATOR_NAMESPACE;

/// The number of writes that are described.
const WRITES: usize = 60;

/// Prints the logs of all operators, with the time of the world. `RUST_LOG` selects them.
pub(super) fn print_logs() {
    struct WorldTime;
    impl tracing_subscriber::fmt::time::FormatTime for WorldTime {
        fn format_time(&self, writer: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
            write!(writer, "{:.3}", super::cluster::now())
        }
    }
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(WorldTime)
        .with_ansi(false);
    // Another test of this process may print them already.
    let _ = logs.try_init();
}

/// Returns one line for each of the last writes of locks, workloads and their pods.
pub(super) fn story(cluster: &str, api: &ApiServer) -> String {
    let (history, _) = api.take_history();
    let lines: Vec<String> = history
        .iter()
        .filter(|write| is_told(write))
        .map(|write| describe_write(cluster, write))
        .collect();
    lines[lines.len().saturating_sub(WRITES)..].concat()
}

/// Reports whether a story has a write: of a lock or a workload, by a user or an operator.
pub(super) fn is_told(write: &CommittedWrite) -> bool {
    let resources = [
        ResourceId::LEADER_LOCKS,
        ResourceId::DEPLOYMENTS,
        ResourceId::STATEFUL_SETS,
        ResourceId::CRON_JOBS,
        ResourceId::JOBS,
        ResourceId::SERVICES,
        ResourceId::LEASES,
        ResourceId::PODS,
    ];
    let is_heartbeat = write.key.resource == ResourceId::LEASES && write.key.namespace == OPERATOR_NAMESPACE;
    resources.contains(&write.key.resource)
        && !is_heartbeat
        && !write.caller.starts_with("kube-")
        && !write.caller.starts_with("kubelet-")
        && !write.caller.starts_with("system:")
}

/// Describes a write in one line, with the fields that it changed.
pub(super) fn describe_write(cluster: &str, write: &CommittedWrite) -> String {
    let CommittedWrite {
        time,
        caller,
        verb,
        subresource,
        key,
        before,
        after,
        ..
    } = write;
    let mut changes = Vec::new();
    let (before, after) = (before.as_deref(), after.as_deref());
    differences(
        "",
        before.unwrap_or(&Value::Null),
        after.unwrap_or(&Value::Null),
        &mut changes,
    );
    changes.truncate(12);
    let (verb, changes) = (verb.name(), changes.join(", "));
    format!(
        "  {time:.3} {cluster} {caller}: {verb} {} {subresource}: {changes}\n",
        key.name
    )
}

/// Collects the fields that differ, without those that change with every write.
fn differences(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    let boring = [
        "/metadata/managedFields",
        "/metadata/resourceVersion",
        "/metadata/uid",
    ];
    if before == after || boring.contains(&path) || path.ends_with("/lastTransitionTime") {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let side =
                |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
            differences(&format!("{path}/{key}"), &side(old), &side(new), changes);
        }
        return;
    }
    let mut text = after.to_string();
    text.truncate(text.char_indices().nth(160).map_or(text.len(), |(end, _)| end));
    changes.push(format!("{path}={text}"));
}
