//! Runs the program under test.

use std::process::{Command, Stdio};
use std::time::Duration;

use redlock_testkit::{ChildGuard, RedisServer, RedisServers, ServerOptions, eventually_blocking};

/// Longer than any command takes that does not wait for a seal.
const BOUND: Duration = Duration::from_secs(60);

/// The output and the exit code.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program to its end, without a kubeconfig, and without REDLOCK_ variables except the given ones. Asserts
/// that no output contains the value of a given password.
pub fn redlock_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    crate::common::forget_variables(&mut command);
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .env("HOME", "/nonexistent")
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let mut child = ChildGuard::spawn(&format!("redlock {arguments:?}"), &mut command);
    let (status, _) = child.wait(BOUND);
    let (stdout, stderr) = (child.stdout().join("\n"), child.stderr().join("\n"));
    assert!(!stderr.contains("panicked"), "{stderr}");
    let ran = Ran {
        code: status.code(),
        stdout,
        stderr,
    };
    let secret = |(name, value): &&(&str, &str)| name.ends_with("PASSWORD") && !value.is_empty();
    for (_, value) in variables.iter().filter(secret) {
        ran.keeps(value);
    }
    ran
}

pub fn redlock(arguments: &[&str]) -> Ran {
    redlock_with(arguments, &[])
}

/// Runs the program until it ends with this code, and its output contains all of these texts; see [`until`].
pub fn redlock_until(arguments: &[&str], code: i32, texts: &[&str]) -> Ran {
    redlock_until_with(arguments, &[], code, texts)
}

/// Does the same with these REDLOCK_ variables.
pub fn redlock_until_with(arguments: &[&str], variables: &[(&str, &str)], code: i32, texts: &[&str]) -> Ran {
    until(|| redlock_with(arguments, variables), code, texts)
}

/// Repeats a command until it ends with this code, and its output contains all of these texts: on a busy machine, a
/// master or an API server may answer later than the command waits. A code that has another cause fails at once.
pub fn until(run: impl Fn() -> Ran, code: i32, texts: &[&str]) -> Ran {
    // The doctor ends with 1 if a master is slow. An API server that answers too late leads to 78, or 80.
    let late: &[i32] = match code {
        64 | 77 | 78 => &[1, 69],
        _ => &[1, 69, 78, 80],
    };
    eventually_blocking(BOUND, &format!("code {code} with {texts:?}"), || {
        let ran = run();
        let ends_with = |code: &i32| ran.code == Some(*code);
        if ends_with(&code) && texts.iter().all(|text| ran.shows(text)) {
            return Ok(ran);
        }
        let repeats = ends_with(&code) || late.iter().any(ends_with);
        assert!(repeats, "not {code} with {texts:?}: {ran:#?}");
        println!("{ran:?}");
        Err(ran)
    })
}

impl Ran {
    pub fn shows(&self, text: &str) -> bool {
        self.stdout.contains(text) || self.stderr.contains(text)
    }

    /// Asserts this exit code, and that the output contains all of these texts.
    pub fn expect(&self, code: i32, texts: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in texts {
            assert!(self.shows(text), "{text:?} is not shown: {self:#?}");
        }
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Asserts that no output contains the secret.
    pub fn keeps(&self, secret: &str) -> &Self {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert!(!all.contains(secret), "a secret is shown: {all}");
        self
    }
}

pub fn urls(servers: &[RedisServer]) -> String {
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    urls.join(",")
}

/// Starts three servers that vote; returns them and their urls.
pub fn quorum() -> (RedisServers, String) {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    init(&servers, &[], &[]);
    let urls = urls(&servers);
    (servers, urls)
}

/// Seals servers that were never used; see [`sealed_by`].
pub fn init(servers: &[RedisServer], flags: &[&str], variables: &[(&str, &str)]) {
    init_each(servers, &[flags], variables);
}

/// Does the same for several quorums on these servers, each with its own flags.
pub fn init_each(servers: &[RedisServer], each: &[&[&str]], variables: &[(&str, &str)]) -> Vec<Ran> {
    let urls = urls(servers);
    let seal = |flags: &&[&str]| redlock_with(&[&["init", "--masters", &urls], *flags].concat(), variables);
    sealed_by(servers, || each.iter().map(seal).collect())
}

/// Seals servers that were never used, with these commands. A master on a busy machine may answer later than a command
/// waits, so that only some are sealed: then all servers restart empty and are sealed again.
pub fn sealed_by(servers: &[RedisServer], seal: impl Fn() -> Vec<Ran>) -> Vec<Ran> {
    let votes = format!("all {} masters vote", servers.len());
    let rans = eventually_blocking(BOUND, &votes, || {
        let rans = seal();
        if rans.iter().all(|ran| ran.code != Some(69)) {
            return Ok(rans);
        }
        println!("{rans:?}");
        servers.iter().for_each(|server| server.restart_empty().unwrap());
        Err(rans)
    });
    for ran in &rans {
        ran.expect(0, &[&votes]);
    }
    rans
}
