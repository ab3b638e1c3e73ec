//! Finds programs that `scripts/build-kubernetes` builds, in addition to those of Kubernetes.

use std::env;
use std::path::{Path, PathBuf};

pub fn helm() -> PathBuf {
    tool("helm", "HELM")
}

pub fn promtool() -> PathBuf {
    tool("promtool", "PROMTOOL")
}

/// Returns the program that the variable names, else the built one, else that of the system.
fn tool(name: &str, variable: &str) -> PathBuf {
    if let Some(tool) = env::var_os(variable).filter(|tool| !tool.is_empty()) {
        return tool.into();
    }
    let entries = cache().read_dir().into_iter().flatten().flatten();
    let built = entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{name}-v"))
        })
        .map(|entry| entry.path().join(name))
        .find(|tool| tool.is_file());
    let of_the_system = || {
        env::split_paths(&env::var_os("PATH")?)
            .map(|folder| folder.join(name))
            .find(|tool| tool.is_file())
    };
    built.or_else(of_the_system).unwrap_or_else(|| {
        panic!("{name} is missing: `make kubernetes` builds it (or set {variable} to its path)")
    })
}

/// Returns the cache of the builds.
pub fn cache() -> PathBuf {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&env::var_os("HOME").expect("HOME is set")).join(".cache"),
    };
    cache.join("redlock-operator")
}
