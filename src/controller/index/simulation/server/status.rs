//! Patches and reads the statuses of objects.

use serde_json::Value;

use super::Server;

impl Server {
    /// Returns the reason and the message of a quorum's `Ready` condition.
    pub(in crate::controller::index::simulation) fn ready_of(&self, name: &str) -> Option<(String, String)> {
        let status = self.quorums.get(name)?.status.as_ref()?;
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|condition| condition.type_ == "Ready")?;
        Some((ready.reason.clone(), ready.message.clone()))
    }

    /// Returns the messages of all conditions in the status.
    pub(in crate::controller::index::simulation) fn messages_of(&self, name: &str) -> String {
        let status = self.quorums.get(name).and_then(|object| object.status.as_ref());
        let conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions
            .map(|condition| format!("{}\n", condition.message))
            .collect()
    }
}

/// Applies a JSON merge patch to a status.
pub(super) fn merged<T: serde::Serialize + serde::de::DeserializeOwned>(
    before: &Option<T>,
    patch: &Value,
) -> Option<T> {
    let mut status = serde_json::to_value(before).unwrap();
    if !status.is_object() {
        status = Value::Object(Default::default());
    }
    merge(&mut status, patch);
    Some(serde_json::from_value(status).unwrap())
}

fn merge(into: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(patch)) = (&mut *into, patch) else {
        into.clone_from(patch);
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
