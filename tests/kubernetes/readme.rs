//! What the README prints for a cluster works as printed.

use crate::fixture::kubelet::Recorder;
use crate::fixture::{ControlPlane, Kubelet, Options, seed};
use crate::typed::{commands, typed};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_readme_says_of_a_cluster_can_be_typed() {
    let plane = ControlPlane::start(Options::default());
    // Helm waits for the pods.
    let _kubelet = Kubelet::start(&plane, "test", seed(), &Recorder::default());
    let readme = std::fs::read_to_string("README.md").unwrap();
    let (_, section) = readme.split_once("\n## In a cluster\n").expect("the section");
    let mut count = 0;
    for line in commands(section) {
        // It stays until it is stopped.
        if line.ends_with("-w") {
            continue;
        }
        typed(&plane, &line);
        count += 1;
    }
    assert!(count >= 2, "{count} commands");
    let shown = typed(&plane, "kubectl get leaderlocks,redisquorums --all-namespaces");
    assert!(
        shown.contains("nightly-report") && shown.contains("default"),
        "{shown}"
    );
}
