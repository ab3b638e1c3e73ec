//! Writes the finalizer of a lock with its record, and reads the object.

use kube::ResourceExt;

use super::Server;
use crate::{
    api::{FINALIZER, in_force::IN_FORCE},
    controller::{
        index::{FinalizerChange, FinalizerEnd, LockReadEnd},
        object::ObjectKey,
    },
};

impl Server {
    pub(in crate::controller::index::simulation) fn set_finalizer(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        change: &FinalizerChange,
    ) -> Result<FinalizerEnd, String> {
        let present = change.adds();
        let Some(mut object) = self.locks.get(key).filter(|_| !self.unserved).cloned() else {
            return Ok(FinalizerEnd::Gone);
        };
        if object.metadata.uid.as_deref() != uid {
            return Err("the UID is another one".into());
        }
        if present && object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty() {
            return Err("no finalizer can be added".into());
        }
        let annotations = object.metadata.annotations.get_or_insert_default();
        match change {
            FinalizerChange::Add(record) => {
                let record = serde_json::to_string(record).map_err(|error| error.to_string())?;
                annotations.insert(IN_FORCE.to_owned(), record);
            }
            FinalizerChange::Remove { version } => {
                if version.is_some() && *version != object.metadata.resource_version {
                    return Err("a conflict".into());
                }
                annotations.remove(IN_FORCE);
            }
        }
        object.metadata.finalizers = present.then(|| vec![FINALIZER.to_owned()]);
        Ok(FinalizerEnd::Written(Box::new(self.store(object))))
    }

    pub(in crate::controller::index::simulation) fn read_lock(&self, key: &ObjectKey) -> LockReadEnd {
        match self.locks.get(key).filter(|_| !self.unserved) {
            Some(object) => LockReadEnd::Read(Box::new(object.clone())),
            None => LockReadEnd::Gone,
        }
    }
}
