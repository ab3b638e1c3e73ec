//! Tests that invalid values are refused, by name, before anything is installed.

use crate::render::try_render;

/// What `--set` gives, and what the message names.
const REFUSED: &[(&str, &str)] = &[
    ("replicas=0", "/replicas"),
    (
        "clusterName=a/b",
        "clusterName: \"a/b\" is not the name of a cluster",
    ),
    (
        "clusterName=a b",
        "clusterName: \"a b\" is not the name of a cluster",
    ),
    (
        "clusterName=arn:aws:eks:eu-central-1:123456789012:cluster/prod-a",
        "such as prod-a for the EKS cluster",
    ),
    ("image.digest=latest", "/image/digest"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
    ("log.format=xml", "/log/format"),
    ("apiRequestsPerSecond=5", "/apiRequestsPerSecond"),
    ("targetKinds[0].resource=deployments", "/targetKinds/0"),
    (
        "targetKinds[0].group=*,targetKinds[0].resource=deployments",
        "/targetKinds/0/group",
    ),
    (
        "targetKinds[0].group=apps,targetKinds[0].resource=Deployment",
        "/targetKinds/0/resource",
    ),
    (
        "targetFields[0].group=a.b,targetFields[0].resource=cs,targetFields[0].path=/status/x",
        "/targetFields/0/path",
    ),
    (
        "targetFields[0].resource=cs,targetFields[0].path=/spec/x",
        "cs without a group",
    ),
    ("watchNamespaces={Billing}", "/watchNamespaces/0"),
    (
        "terminationGracePeriodSeconds=0",
        "/terminationGracePeriodSeconds",
    ),
    (
        "metrics.serviceMonitor.interval=often",
        "/metrics/serviceMonitor/interval",
    ),
    ("quickstart.masters=4", "/quickstart/masters"),
    ("quorums.Default.masters[0].name=m0", "Default"),
    ("quorums.default.masters=null", "/quorums/default/masters"),
    (
        "global.imagePullSecrets[0].secret=a",
        "/global/imagePullSecrets/0",
    ),
    ("agents.namespaces={shop}", "agents.clusterUID"),
    ("fencing.kubeletDir=var/lib/kubelet", "/fencing/kubeletDir"),
    ("fencing.kubeletDir=/var/lib/kubelet/", "/fencing/kubeletDir"),
    ("fencing.kubeletDir=/var/../etc", "/fencing/kubeletDir"),
    (
        "fencing.enabled=true,fencing.redis.ca=true",
        "fencing.redis.secretName",
    ),
];

#[test]
fn invalid_values_are_refused_by_name() {
    for (value, named) in REFUSED {
        let error = try_render(&[&format!("--set={value}")])
            .map(|_| ())
            .expect_err(value);
        assert!(error.contains(named), "{value}: {error}");
    }
}
