//! Tests `redlock run` at a terminal: the command reads from it, and Ctrl-C reaches it once.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use nix::pty::openpty;

use crate::wrapper::{BOUND, Quorum};
use redlock_testkit::eventually_blocking;

struct AtTerminal {
    keyboard: File,
    screen: std::sync::Arc<std::sync::Mutex<String>>,
    child: Child,
}

impl AtTerminal {
    fn start(quorum: &Quorum, script: &str) -> Self {
        Self::of(|by| quorum.command_by(by, "l", &[], script))
    }

    /// Starts a session with a controlling terminal, like a login.
    fn of(command: impl Fn(&[&str]) -> Command) -> Self {
        let pty = openpty(None, None).unwrap();
        let mut command = command(&["setsid", "--ctty"]);
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let child = child.expect("setsid of util-linux");
        let keyboard = File::from(pty.master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let shown = screen.clone();
        // The thread ends when the last process closes the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self {
            keyboard,
            screen,
            child,
        }
    }

    fn shows(&self, text: &str) -> String {
        eventually_blocking(BOUND, &format!("the terminal shows {text:?}"), || {
            let screen = self.screen.lock().unwrap().clone();
            if screen.contains(text) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    fn ends(&mut self) -> Option<i32> {
        let status = eventually_blocking(BOUND, "it ends", || {
            self.child.try_wait().unwrap().ok_or("it runs")
        });
        status.code()
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_command_reads_from_the_terminal() {
    let quorum = Quorum::start();
    let mut terminal = AtTerminal::start(&quorum, "echo ready; read line; echo \"read <$line>\"; exit 4");
    terminal.shows("ready");
    terminal.types("hello\n");
    terminal.shows("read <hello>");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn an_interrupt_reaches_the_command_once() {
    let quorum = Quorum::start();
    let script = "trap 'echo got-it' INT; echo ready; read line; read line; echo done";
    let mut terminal = AtTerminal::start(&quorum, script);
    terminal.shows("ready");
    terminal.types("\u{3}");
    terminal.shows("got-it");
    terminal.types("a\nb\n");
    let screen = terminal.shows("done");
    assert_eq!(screen.matches("got-it").count(), 1, "{screen}");
    assert_eq!(terminal.ends(), Some(0));
}

/// A shell with job control gets its terminal back, and returns it.
#[test]
fn stopped_job_continues_in_the_foreground() {
    let quorum = Quorum::start();
    let mut terminal = AtTerminal::of(|by| {
        let mut shell = Command::new(by[0]);
        shell.args(&by[1..]).args(["sh", "-i"]).env("PS1", "prompt> ");
        shell
    });
    terminal.shows("prompt> ");
    let redlock = env!("CARGO_BIN_EXE_redlock");
    let script = "'echo rea\"\"dy; read line; echo \"read <$line>\"'";
    terminal.types(&format!(
        "{redlock} run l --masters {} --lease-duration 60s -w 60 -- sh -c {script}\n",
        quorum.urls
    ));
    terminal.shows("ready");
    terminal.types("\u{1a}");
    terminal.shows("Stopped");
    terminal.types("fg\n");
    terminal.types("hello\n");
    terminal.shows("read <hello>");
    terminal.types("echo still he\"\"re\n");
    terminal.shows("still here");
    terminal.types("exit 7\n");
    assert_eq!(terminal.ends(), Some(7));
}
