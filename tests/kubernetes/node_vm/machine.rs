//! The virtual machine of a test: a node of a control plane on this machine.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::fixture::{ControlPlane, Process};
use redlock_testkit::eventually_blocking;

/// A generous bound: an emulated machine is about ten times slower than this one.
const BOUND: Duration = Duration::from_secs(600);
/// The line of `init`, once it has started all services.
const READS_COMMANDS: &str = "the shell reads commands";

/// A running machine, which ends on drop.
#[derive(Debug)]
pub struct Machine {
    _process: Process,
    _folder: TempDir,
    /// One connection for all commands: no output is lost, and no command is sent twice.
    shell: UnixStream,
    commands: u64,
}

impl Machine {
    /// Boots the machine of `scripts/build-node-vm` with `redlock` as an image. It reaches these masters on 10.0.0.1, at port 7000
    /// and the next ones. `nc -U FOLDER/second-shell` opens a shell of it while a test runs.
    pub fn boot(plane: &ControlPlane, masters: &[u16]) -> Self {
        let built = PathBuf::from(std::env::var_os("NODE_VM").expect("NODE_VM: run `make node-vm`"));
        let folder = tempfile::Builder::new()
            .prefix("redlock-node-vm-")
            .tempdir()
            .unwrap();
        seed(plane, masters, &built, folder.path());
        let drive = |path: &Path| format!("file={},format=raw,if=virtio,cache=unsafe", path.display());
        let arguments = [
            // KVM is not available everywhere.
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "2048",
            "-kernel",
            &built.join("kernel").display().to_string(),
            "-initrd",
            &built.join("initrd").display().to_string(),
            "-append",
            "console=ttyS0 quiet panic=-1",
            // Writes go to a temporary file, which a reboot keeps.
            "-drive",
            &format!("{},snapshot=on", drive(&built.join("disk"))),
            "-drive",
            &drive(&folder.path().join("seed")),
            "-netdev",
            "user,id=net",
            "-device",
            "virtio-net-pci,netdev=net",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            &format!("file:{}/console.log", folder.path().display()),
            "-serial",
            &format!("unix:{}/shell,server=on,wait=off", folder.path().display()),
            "-serial",
            &format!("unix:{}/second-shell,server=on,wait=off", folder.path().display()),
        ];
        let arguments = arguments.map(str::to_owned);
        let program = Path::new("/usr/bin/qemu-system-x86_64");
        let process = Process::spawn("node-vm", folder.path(), program, &arguments);
        let shell = eventually_blocking(BOUND, "the machine starts", || {
            UnixStream::connect(folder.path().join("shell"))
        });
        shell.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut machine = Self {
            _process: process,
            _folder: folder,
            shell,
            commands: 0,
        };
        machine.read_until(READS_COMMANDS);
        machine
    }

    /// Runs a command of the shell as root; returns its output.
    pub fn run(&mut self, command: &str) -> String {
        self.commands += 1;
        let end = format!("end of command {}", self.commands);
        let line = format!("{{ {command}\n}} </dev/null 2>&1; echo; echo {end}\n");
        self.shell.write_all(line.as_bytes()).unwrap();
        self.read_until(&end)
    }

    /// Returns when the shell of the machine reads commands again.
    pub fn reboot(&mut self) {
        self.shell.write_all(b"sync; reboot -f\n").unwrap();
        self.read_until(READS_COMMANDS);
    }

    /// Reads until this line; returns the text before it.
    fn read_until(&mut self, line: &str) -> String {
        let began = Instant::now();
        let mut seen = Vec::new();
        while began.elapsed() < BOUND {
            let mut part = [0; 4096];
            match self.shell.read(&mut part) {
                Ok(length) if length > 0 => seen.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                ended => panic!("the machine has ended: {ended:?}"),
            }
            let text = String::from_utf8_lossy(&seen);
            if let Some((output, _)) = text.split_once(&format!("{line}\n")) {
                return output.trim().to_owned();
            }
        }
        panic!("no {line:?} in {:?}", String::from_utf8_lossy(&seen));
    }
}

/// Writes the second disk: credentials, ports and images.
fn seed(plane: &ControlPlane, masters: &[u16], built: &Path, folder: &Path) {
    let files = folder.join("files");
    fs::create_dir(&files).unwrap();
    for name in ["ca.crt", "admin.crt", "admin.key"] {
        fs::copy(plane.certificate(name), files.join(name)).unwrap();
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "vm", "cluster": {
            "server": "https://10.0.0.1", "certificate-authority": "/node/ca.crt",
        }}],
        "users": [{"name": "vm", "user": {
            "client-certificate": "/node/admin.crt", "client-key": "/node/admin.key",
        }}],
        "contexts": [{"name": "vm", "context": {"cluster": "vm", "user": "vm"}}],
        "current-context": "vm",
    });
    fs::write(files.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let masters: Vec<String> = masters.iter().map(u16::to_string).collect();
    let ports = format!("api={}\nmasters='{}'\n", plane.port(), masters.join(" "));
    fs::write(files.join("ports"), ports).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/node_vm/seed");
    let written = Command::new(script)
        .arg(&files)
        .arg(env!("CARGO_BIN_EXE_redlock"))
        .arg(built.join("busybox"))
        .arg(folder.join("seed"))
        .status()
        .unwrap();
    assert!(written.success(), "seed: {written}");
    fs::remove_dir_all(files).unwrap();
}
