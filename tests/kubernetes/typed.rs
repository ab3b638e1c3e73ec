//! Runs the commands of a page as printed.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::common::pages::blocks_for;
use crate::common::tools::promtool;
use crate::fixture::{BOUND, ControlPlane, helm};
use redlock_testkit::eventually_blocking;

/// The exit code of `redlock` without a majority of the masters.
const NO_QUORUM: i32 = 69;
/// The exit code of `redlock doctor` if a check fails, also because a master answers too late.
const UNHEALTHY: i32 = 1;

/// Returns the commands of a page that this test file runs, except those that run until they are stopped.
pub fn commands(page: &str, file: &str) -> Vec<String> {
    let all = blocks_for(page, file)
        .into_iter()
        .flat_map(|block| block.commands());
    all.filter(|command| !stays(command)).collect()
}

/// Reports whether the command watches.
pub fn stays(command: &str) -> bool {
    command
        .split('#')
        .next()
        .unwrap_or_default()
        .trim_end()
        .ends_with(" -w")
}

/// Runs a command as the administrator, in the repository.
pub fn typed(plane: &ControlPlane, command: &str) -> String {
    typed_in(plane, Path::new(env!("CARGO_MANIFEST_DIR")), command)
}

/// Runs a command as the administrator, with kubectl, Helm, promtool and `redlock` on the path. Panics with
/// the output of the command if it fails. Repeats a command that no majority of the masters answered in time,
/// and a doctor that finds a problem.
pub fn typed_in(plane: &ControlPlane, folder: &Path, command: &str) -> String {
    let kubeconfig = plane.kubeconfig_admin();
    // The command gets its own HOME: kubectl caches there what it knows of the server at this port, which was
    // another server before.
    let kubectl = plane.kubectl_command(&kubeconfig);
    let variables = kubectl
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let folders = [
        Path::new(kubectl.get_program()),
        Path::new(&helm()),
        Path::new(&promtool()),
        Path::new(env!("CARGO_BIN_EXE_redlock")),
    ]
    .map(|program| program.parent().unwrap().to_owned());
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths(folders.into_iter().chain(env::split_paths(&path))).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-o", "pipefail", "-c", command])
        .current_dir(folder)
        .env("PATH", &path)
        .envs(variables);
    let late: &[i32] = if command.starts_with("redlock doctor") {
        &[NO_QUORUM, UNHEALTHY]
    } else {
        &[NO_QUORUM]
    };
    let output = eventually_blocking(BOUND, command, || {
        let output = bash.output().unwrap();
        if output.status.code().is_some_and(|code| late.contains(&code)) {
            Err(output)
        } else {
            Ok(output)
        }
    });
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (shown(&output.stdout), shown(&output.stderr));
    assert!(output.status.success(), "{command}: {stdout}{stderr}");
    stdout
}
