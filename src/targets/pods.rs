//! The pods of a target.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};

use super::TargetError;
use crate::{clock, lease::Moment};

/// What is still there this long before the end is deleted with the time that is left.
const DELETE_BEFORE: Duration = Duration::from_secs(3);
/// What its controller has not deleted yet, it may replace: that waits as long as it can.
const REPLACED_BEFORE: Duration = Duration::from_secs(1);
/// Without any the API server would forget the pod at once, and its process would still be given a second.
const LEAST_GRACE: u32 = 1;

#[derive(Clone, Debug)]
pub(super) struct Pods {
    api: Api<Pod>,
    /// As in `Deployment billing/report`.
    of: String,
}

/// One that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    name: String,
    /// It is being deleted already.
    going: bool,
}

impl Pods {
    pub(super) fn new(client: &Client, namespace: &str, of: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            of: of.to_owned(),
        }
    }

    async fn list(&self, selector: &str) -> Result<Vec<Pod>, TargetError> {
        let list = self.api.list(&ListParams::default().labels(selector)).await;
        list.map(|list| list.items)
            .map_err(|error| TargetError::of(format!("listing the pods of {}", self.of), &error))
    }

    pub(super) async fn any_ready(&self, selector: &str) -> Result<bool, TargetError> {
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
            let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
            ready.any(|condition| condition.status == "True")
        };
        Ok(self.list(selector).await?.iter().any(is_ready))
    }

    /// Those that have not ended.
    pub(super) async fn left(&self, selector: &str) -> Result<Vec<Left>, TargetError> {
        self.left_of(selector, |_| true).await
    }

    /// The same of those that `belong`, where a selector cannot say it.
    pub(super) async fn left_of(
        &self,
        selector: &str,
        belong: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Left>, TargetError> {
        let lives = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let left = self.list(selector).await?.into_iter();
        let left = left.filter(|pod| lives(pod) && belong(pod)).map(|pod| Left {
            going: pod.metadata.deletion_timestamp.is_some(),
            name: pod.metadata.name.unwrap_or_default(),
        });
        Ok(left.collect())
    }

    /// Near the end: deletes these with the grace period that is left until then.
    pub(super) async fn hurry(&self, pods: &[Left], by: Option<Moment>) -> Result<(), TargetError> {
        let Some(left) = by.map(|by| by.left(clock::now())) else {
            return Ok(());
        };
        let grace = u32::try_from(left.as_secs()).unwrap_or(0).max(LEAST_GRACE);
        let due = |pod: &&Left| left <= if pod.going { DELETE_BEFORE } else { REPLACED_BEFORE };
        for pod in pods.iter().filter(due) {
            self.delete(&pod.name, grace).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str, grace_seconds: u32) -> Result<(), TargetError> {
        let parameters = DeleteParams::default().grace_period(grace_seconds);
        match self.api.delete(name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(TargetError::of(
                format!("deleting pod {name} of {}", self.of),
                &error,
            )),
        }
    }
}
