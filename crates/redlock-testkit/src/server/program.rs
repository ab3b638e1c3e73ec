//! Finds the `redis-server` of this machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::RedisServerError;

/// Fedora and Arch ship Valkey instead of Redis; it speaks the same protocol and reads the same configuration.
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];
/// The variable that names the program to run instead of the one in PATH.
const CHOICE: &str = "REDIS_SERVER";
/// The oldest version that the protocol accepts as a master.
const OLDEST: (u32, u32) = (6, 2);

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) version: (u32, u32),
}

pub(super) fn find() -> Result<Program, RedisServerError> {
    let path = chosen(env::var_os(CHOICE), &env::var_os("PATH").unwrap_or_default());
    let path = path.ok_or(RedisServerError::Missing)?;
    let output = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| RedisServerError::Spawn {
            program: path.clone(),
            source,
        })?;
    let output = String::from_utf8_lossy(&output.stdout);
    let Some(version) = parse_version(&output) else {
        return Err(RedisServerError::NoVersion {
            program: path,
            output: output.trim().to_owned(),
        });
    };
    if version < OLDEST {
        return Err(RedisServerError::TooOld {
            program: path,
            major: version.0,
            minor: version.1,
        });
    }
    Ok(Program { path, version })
}

fn chosen(choice: Option<OsString>, path: &OsStr) -> Option<PathBuf> {
    let choice = choice.filter(|choice| !choice.is_empty());
    choice.map(PathBuf::from).or_else(|| find_in(path))
}

fn find_in(path: &OsStr) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(path).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
}

/// Parses `Redis server v=7.0.15 sha=…` of Redis, or `Valkey server v=8.0.1 sha=…` of Valkey.
fn parse_version(output: &str) -> Option<(u32, u32)> {
    let version = output
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_output_of_the_server() {
        let output =
            "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0";
        assert_eq!(parse_version(output), Some((7, 0)));
        assert_eq!(parse_version("Valkey server v=8.1.4 sha=0"), Some((8, 1)));
        assert_eq!(parse_version("redis-server: unknown option"), None);
        assert_eq!(parse_version("Redis server v=seven"), None);
    }

    #[test]
    fn redis_is_preferred_to_valkey_wherever_it_stands_in_the_path() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = env::join_paths([first.path(), second.path()]).unwrap();
        assert_eq!(find_in(&path), None);
        let valkey = first.path().join("valkey-server");
        std::fs::write(&valkey, "").unwrap();
        assert_eq!(find_in(&path), Some(valkey));
        let redis = second.path().join("redis-server");
        std::fs::write(&redis, "").unwrap();
        assert_eq!(find_in(&path), Some(redis));
    }

    #[test]
    fn named_program_is_taken_before_those_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let in_path = folder.path().join("redis-server");
        std::fs::write(&in_path, "").unwrap();
        let chosen = |choice: Option<&str>| chosen(choice.map(OsString::from), folder.path().as_os_str());
        assert_eq!(
            chosen(Some("/servers/valkey")),
            Some(PathBuf::from("/servers/valkey"))
        );
        assert_eq!(chosen(None), Some(in_path.clone()));
        assert_eq!(chosen(Some("")), Some(in_path));
    }

    #[test]
    fn a_missing_server_is_an_error_that_names_the_package() {
        let text = RedisServerError::Missing.to_string();
        assert!(text.contains("install the package `redis-server`"), "{text}");
    }
}
