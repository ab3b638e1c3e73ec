//! Kills the replicas and removes the folder when this program dies without cleaning up.
//!
//! A small shell reads orders from a pipe whose other end only this program holds. When the pipe closes without `done`,
//! the shell cleans up. A handler in this program would not run on SIGKILL. The Redis servers have a guard of their
//! own.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The shell ignores the signals of the terminal, which this program handles. A process that ended is removed
/// from the list, because the kernel may give its id to an unrelated process.
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
            // Without its guard the demo still cleans up, unless it is killed.
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
