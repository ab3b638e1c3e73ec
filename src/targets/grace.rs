//! How long the pods of an object may take to end.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;

use super::{TargetError, kind::resource};
use crate::api::target::TargetRef;

/// Where the objects of Kubernetes have a pod template.
const TEMPLATES: [&str; 2] = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
const SECONDS: &str = "terminationGracePeriodSeconds";

/// By its pod template; none without an object, a template or a word about it.
pub(crate) async fn grace(
    client: &Client,
    namespace: &str,
    reference: &TargetRef,
) -> Result<Option<Duration>, TargetError> {
    let resource: ApiResource = resource(client, reference).await?;
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let found = api.get_opt(&reference.name).await;
    let found = found.map_err(|error| {
        let what = format!("reading {} {namespace}/{}", reference.kind, reference.name);
        TargetError::of(what, &error)
    })?;
    Ok(found.and_then(|object| of(&object.data)))
}

fn of(object: &Value) -> Option<Duration> {
    let mut templates = TEMPLATES.iter().filter_map(|path| object.pointer(path));
    templates.next()?.get(SECONDS)?.as_u64().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_stands_in_the_pod_template() {
        let pod = json!({"spec": {"terminationGracePeriodSeconds": 60}});
        let minute = Some(Duration::from_secs(60));
        assert_eq!(of(&json!({"spec": {"template": pod}})), minute);
        assert_eq!(
            of(&json!({"spec": {"jobTemplate": {"spec": {"template": pod}}}})),
            minute
        );
        assert_eq!(of(&json!({"spec": {"template": {"spec": {}}}})), None);
        assert_eq!(of(&json!({"spec": {"replicas": 1}})), None);
    }
}
