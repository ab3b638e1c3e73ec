//! Kills the replicas and removes the folder when this program dies without a word.
//!
//! A small shell reads orders from a pipe whose other end only this program holds. When the pipe closes without `done`,
//! the shell cleans up. A handler in this program would not run on SIGKILL. The Redis servers have the same of their own.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Signals of the terminal are for the demo to answer. A process that left is taken off the list, so that no number on it
/// comes to belong to somebody else.
const SHELL: &str = r#"
trap '' HUP INT TERM
pids=' '
while read -r order pid; do
  case $order in
    watch) pids="$pids$pid " ;;
    forget) pids="${pids%% $pid *} ${pids#* $pid }" ;;
    done) exit 0 ;;
  esac
done
for pid in $pids; do kill -KILL "$pid"; done 2>/dev/null
rm -rf "$1"
"#;

#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    orders: Option<ChildStdin>,
}

impl Guard {
    pub(super) fn start(folder: &Path) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SHELL, "redlock-demo-guard"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = shell.stdin.take();
        Ok(Self { shell, orders })
    }

    pub(super) fn watch(&mut self, pid: u32) {
        self.order(&format!("watch {pid}"));
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.order(&format!("forget {pid}"));
    }

    fn order(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            // A guard that is gone can do nothing for us, and the demo cleans up by itself in every other case.
            let _ = writeln!(orders, "{order}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.order("done");
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}
