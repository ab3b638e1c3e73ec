//! Checks that the controllers of a cluster follow its API server.
//!
//! A controller that lost the API server, even for a second, follows it again after a back-off of up to half
//! a minute. Until then the cluster is not whole, and the fault is not healed.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;

use super::cluster::Cluster;
use super::pair::BOUND;
use redlock_testkit::eventually;

/// A namespace without the work.
const NAMESPACE: &str = "default";
const NAME: &str = "probe";

/// Waits until a Deployment was scaled up and down, and a Job was run, each with all of its controllers.
pub async fn follow(cluster: &Cluster) {
    let api = Api::<Deployment>::namespaced(cluster.client.clone(), NAMESPACE);
    let template = json!({
        "metadata": {
            "labels": {"app": NAME},
            "annotations": {"test.example/run-seconds": "0.1"},
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": NAME, "image": NAME}]},
    });
    let mut lasting = template.clone();
    lasting["metadata"]["annotations"] = json!({});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": NAME}}, "template": lasting},
    });
    for replicas in [1, 0] {
        let mut deployment = deployment.clone();
        deployment["spec"]["replicas"] = replicas.into();
        let what = format!("the Deployment of {} has {replicas} replicas", cluster.name);
        eventually(BOUND, &what, async || {
            let parameters = PatchParams::apply(NAME).force();
            let scaled = api.patch(NAME, &parameters, &Patch::Apply(&deployment)).await;
            let scaled = scaled.map_err(|error| error.to_string())?;
            let status = scaled.status.unwrap_or_default();
            let there = (status.replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
            if status.observed_generation == scaled.metadata.generation && there == (replicas, replicas) {
                Ok(())
            } else {
                Err(format!("{there:?}"))
            }
        })
        .await;
    }
    let jobs = Api::<Job>::namespaced(cluster.client.clone(), NAMESPACE);
    let mut template = template;
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"metadata": {"generateName": "probe-"}, "spec": {"template": template}});
    let job: Job = serde_json::from_value(job).unwrap();
    let made = eventually(BOUND, "a Job is made", async || {
        jobs.create(&PostParams::default(), &job).await
    })
    .await;
    let name = made.metadata.name.expect("its name");
    eventually(
        BOUND,
        &format!("a Job of {} completes", cluster.name),
        async || {
            let job = jobs.get(&name).await.map_err(|error| error.to_string())?;
            let done = job.status.and_then(|status| status.completion_time).is_some();
            if done { Ok(()) } else { Err(String::new()) }
        },
    )
    .await;
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let _ = jobs.delete(&name, &parameters).await;
}
