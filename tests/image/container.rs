//! A process of the image as a restricted pod runs it: only its files, read-only, a user without a name, no
//! capability, no way to gain one. The network is that of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::image::image;
use redlock_testkit::ChildGuard;

/// Mounts the file systems of a runtime, then drops all rights. Capabilities that the last step needs end with the
/// change of the user id.
const ENTER: &str = "
mount --bind \"$0\" \"$0\"
mount --rbind /proc \"$0/proc\"
mount -o remount,bind,ro \"$0\"
exec setpriv --bounding-set=-all,+sys_chroot,+setuid,+setgid --no-new-privs \
    unshare --root \"$0\" --setgid 65532 --setuid 65532 /usr/local/bin/redlock \"$@\"";

/// The files of the image, with those that a kubelet adds.
pub struct Container {
    root: TempDir,
}

impl Container {
    pub fn new() -> Self {
        let root = image().copy();
        fs::create_dir(root.path().join("proc")).unwrap();
        let container = Self { root };
        container.write("etc/hosts", "127.0.0.1 localhost\n");
        container
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    pub fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-euc", ENTER])
            .arg(self.root.path())
            .args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn start(&self, name: &str, arguments: &[&str]) -> ChildGuard {
        ChildGuard::spawn(name, &mut self.command(arguments))
    }
}

/// Returns both streams of the output.
pub fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &output.stderr].concat()).into_owned()
}

/// Returns a field of `/proc/<pid>/status`.
pub fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}"))
        .trim()
        .to_owned()
}
