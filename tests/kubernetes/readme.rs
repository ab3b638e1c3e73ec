//! What the README prints for a cluster works as printed.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::fixture::{ControlPlane, Options, helm};

/// The lines of the first shell block of a section.
fn commands(section: &str) -> Vec<String> {
    let readme = std::fs::read_to_string("README.md").unwrap();
    let (_, rest) = readme
        .split_once(&format!("\n## {section}\n"))
        .expect("the section");
    let (_, rest) = rest.split_once("```sh\n").expect("its commands");
    let (block, _) = rest.split_once("```").unwrap();
    block.lines().map(str::to_owned).collect()
}

#[test]
fn what_the_readme_says_of_a_cluster_can_be_typed() {
    let plane = ControlPlane::start(Options::default());
    let kubeconfig = plane.kubeconfig_admin();
    let kubectl = plane.kubectl_command(&kubeconfig).get_program().to_owned();
    let folders = [
        Path::new(&kubectl),
        Path::new(&helm()),
        Path::new(env!("CARGO_BIN_EXE_redlock")),
    ]
    .map(|program| program.parent().unwrap().to_owned());
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths(folders.into_iter().chain(env::split_paths(&path))).unwrap();
    let mut typed = 0;
    for line in commands("In a cluster") {
        // These two stay until they are stopped; the other tests run them.
        if line.starts_with("redlock operator") || line.ends_with("-w") {
            continue;
        }
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &line])
            .env("PATH", &path)
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}");
        typed += 1;
    }
    assert!(typed >= 4, "{typed} commands");
    let shown = plane.kubectl(&["get", "leaderlocks,redisquorums", "--all-namespaces"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("nightly-report") && shown.contains("default"),
        "{shown}"
    );
}
