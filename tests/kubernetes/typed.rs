//! Commands of a page, typed as they are printed.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::fixture::{ControlPlane, helm};

/// The lines of the first shell block of a text.
pub fn commands(text: &str) -> Vec<String> {
    let (_, rest) = text.split_once("```sh\n").expect("its commands");
    let (block, _) = rest.split_once("```").unwrap();
    block.lines().map(str::to_owned).collect()
}

/// Types a line as the administrator, with kubectl, Helm and `redlock` on the path. Panics with what it says if it fails.
pub fn typed(plane: &ControlPlane, line: &str) -> String {
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
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .env("PATH", &path)
        .env("KUBECONFIG", &kubeconfig)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
