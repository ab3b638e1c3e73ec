//! Tests `scripts/install-tools` on simulated systems: each has only the programs that the test gives it, and its
//! package manager records its arguments.

use std::fs;
use std::path::Path;
use std::process::Output;

use super::programs::Programs;

struct System {
    programs: Programs,
}

impl System {
    /// Creates a system with these package managers, as root.
    fn with(managers: &[&str]) -> Self {
        let system = Self {
            programs: Programs::real(&["bash", "sh", "mktemp", "cat", "chmod"]),
        };
        system.program("id", "echo 0");
        for tool in ["install", "rm", "systemctl"] {
            system.program(tool, &format!("echo {tool} \"$@\" >>\"$SAID\""));
        }
        system.program(
            "env",
            "while case $1 in *=*) true ;; *) false ;; esac; do shift; done; exec \"$@\"",
        );
        for manager in managers {
            system.program(
                manager,
                &format!("echo {manager} \"$@\" >>\"$SAID\"; . \"$MANAGER\""),
            );
        }
        system.manager_does("true");
        system
    }

    fn path(&self) -> &Path {
        self.programs.path()
    }

    fn program(&self, name: &str, script: &str) {
        self.programs.add(name, script);
    }

    /// Sets what a call of the package manager does in addition to the record; its arguments are `$*`.
    fn manager_does(&self, script: &str) {
        fs::write(self.path().join("manager.sh"), format!("{script}\n")).unwrap();
    }

    /// Installs a server with this version output when the arguments of the manager match `pattern`.
    fn manager_installs(&self, pattern: &str, server: &str, version: &str) {
        let script = format!("#!/bin/sh\necho '{version}'");
        let path = self.path().join(server);
        let path = path.display();
        self.manager_does(&format!(
            "case \"$*\" in\n*update*) ;;\n{pattern}) echo \"{script}\" >'{path}'; chmod +x '{path}' ;;\n*) exit 1 ;;\nesac"
        ));
    }

    fn run(&self) -> (Output, String) {
        let output = self
            .programs
            .command("install-tools")
            .env("SAID", self.path().join("said"))
            .env("MANAGER", self.path().join("manager.sh"))
            .output()
            .unwrap();
        let calls = fs::read_to_string(self.path().join("said")).unwrap_or_default();
        (output, calls)
    }
}

const REDIS: &str = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc bits=64 build=0";

fn stderr(output: &Output) -> String {
    assert!(
        output.stdout.is_empty(),
        "stdout belongs to the command that needed the tool"
    );
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_server_that_is_there_is_left_alone_in_silence() {
    for server in ["redis-server", "valkey-server"] {
        let system = System::with(&["apt-get"]);
        system.program(server, &format!("echo '{REDIS}'"));
        let (output, calls) = system.run();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!((stderr(&output).as_str(), calls.as_str()), ("", ""));
    }
}

#[test]
fn every_package_manager_gets_its_own_command() {
    for (manager, wanted) in [
        ("apt-get", "apt-get -q update\n"),
        ("dnf", "dnf install -y redis\n"),
        ("yum", "yum install -y redis\n"),
        ("apk", "apk add --no-cache redis\n"),
        ("pacman", "pacman -Sy --noconfirm --needed redis\n"),
        ("zypper", "zypper --non-interactive install redis\n"),
        ("brew", "brew install redis\n"),
    ] {
        let system = System::with(&[manager]);
        system.manager_installs("*redis*", "redis-server", REDIS);
        let (output, calls) = system.run();
        assert!(output.status.success(), "{manager}: {}", stderr(&output));
        assert!(calls.contains(wanted), "{manager}: {calls}");
    }
}

#[test]
fn debian_does_not_start_a_server() {
    let system = System::with(&["apt-get"]);
    system.manager_installs("*redis-server", "redis-server", REDIS);
    let (_, calls) = system.run();
    let place = |what: &str| {
        calls
            .find(what)
            .unwrap_or_else(|| panic!("no {what:?} in:\n{calls}"))
    };
    let installed = place("apt-get -q install -y --no-install-recommends redis-server");
    assert!(place("apt-get -q update") < installed);
    assert!(installed < place("systemctl disable --now redis-server"));
    if !Path::new("/usr/sbin/policy-rc.d").exists() {
        assert!(place("install -m 755") < installed);
        assert!(
            installed < place("rm -f /usr/sbin/policy-rc.d"),
            "the policy goes again"
        );
    }
}

#[test]
fn valkey_is_taken_where_redis_is_gone() {
    let system = System::with(&["dnf"]);
    system.manager_installs(
        "*valkey*",
        "valkey-server",
        "Valkey server v=8.0.1 sha=0 malloc=libc bits=64 build=0",
    );
    let (output, calls) = system.run();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(calls, "dnf install -y redis\ndnf install -y valkey\n");
}

#[test]
fn a_failure_names_the_package() {
    let nothing = System::with(&[]);
    let failing = System::with(&["apt-get"]);
    failing.manager_does("exit 100");
    let no_root = System::with(&["apk"]);
    no_root.program("id", "echo 1000");
    let empty = System::with(&["zypper"]);
    for (system, wanted) in [
        (nothing, "no package manager found"),
        (failing, "installing the package `redis-server` failed"),
        (
            no_root,
            "not root and no sudo: install the package `redis` yourself",
        ),
        (
            empty,
            "the package `redis` is installed, but there is no redis-server",
        ),
    ] {
        let (output, calls) = system.run();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{wanted}: {text} {calls}");
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
}

#[test]
fn a_server_that_is_too_old_is_refused_with_its_version() {
    for (version, accepted) in [
        ("6.0.16", false),
        ("5.0.3", false),
        ("6.2.0", true),
        ("10.0.0", true),
    ] {
        let system = System::with(&["apt-get"]);
        system.program("redis-server", &format!("echo 'Redis server v={version} sha=0'"));
        let (output, _) = system.run();
        assert_eq!(
            output.status.success(),
            accepted,
            "{version}: {}",
            stderr(&output)
        );
        assert!(accepted || stderr(&output).contains("6.2 or newer is needed"));
    }
}

#[test]
fn without_root_sudo_is_used() {
    let system = System::with(&["apk"]);
    system.program("id", "echo 1000");
    system.program("sudo", "echo sudo \"$@\" >>\"$SAID\"; exec \"$@\"");
    system.manager_installs("*redis*", "redis-server", REDIS);
    let (output, calls) = system.run();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(calls.starts_with("sudo apk add --no-cache redis\n"), "{calls}");
}
