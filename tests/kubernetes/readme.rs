//! What the README prints for a cluster works as printed.

use crate::fixture::{ControlPlane, Options};
use crate::typed::{commands, typed};

#[test]
fn what_the_readme_says_of_a_cluster_can_be_typed() {
    let plane = ControlPlane::start(Options::default());
    let readme = std::fs::read_to_string("README.md").unwrap();
    let (_, section) = readme.split_once("\n## In a cluster\n").expect("the section");
    let mut count = 0;
    for line in commands(section) {
        // These two stay until they are stopped; the other tests run them.
        if line.starts_with("redlock operator") || line.ends_with("-w") {
            continue;
        }
        typed(&plane, &line);
        count += 1;
    }
    assert!(count >= 4, "{count} commands");
    let shown = typed(&plane, "kubectl get leaderlocks,redisquorums --all-namespaces");
    assert!(
        shown.contains("nightly-report") && shown.contains("default"),
        "{shown}"
    );
}
