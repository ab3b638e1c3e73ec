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

    /// Starts an interactive shell with job control, and waits for its prompt.
    fn shell() -> Self {
        let terminal = Self::of(|by| {
            let mut shell = Command::new(by[0]);
            shell.args(&by[1..]).args(["sh", "-i"]).env("PS1", "prompt> ");
            shell
        });
        terminal.shows("prompt> ");
        terminal
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
    let mut terminal = AtTerminal::shell();
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

/// Ctrl-C reaches the group of the pipeline, of which the stopped command is no member.
#[test]
fn command_that_the_terminal_stops_in_a_pipeline_is_reported_and_can_be_interrupted() {
    let quorum = Quorum::start();
    let mut terminal = AtTerminal::shell();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    terminal.types(&format!(
        "{redlock} run l --masters {} --lease-duration 60s -w 60 -- sh -c 'read line < /dev/tty' | cat\n",
        quorum.urls
    ));
    terminal.shows("SIGTTIN stopped the command, which holds the lock");
    terminal.types("\u{3}");
    terminal.types("echo still he\"\"re\n");
    terminal.shows("still here");
    // The wrapper ends after its pipeline.
    quorum.is_free("l");
    terminal.types("exit 7\n");
    assert_eq!(terminal.ends(), Some(7));
}

/// It asks the terminal again when it continues, and would hold the lock for ever.
#[test]
fn command_that_the_terminal_stops_again_ends_after_its_grace() {
    let quorum = Quorum::start();
    let mut terminal = AtTerminal::shell();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    let script = "trap \"\" INT TERM; while :; do read line < /dev/tty; done";
    terminal.types(&format!(
        "{redlock} run l -q --masters {} --lease-duration 60s --stop-grace 1s -w 60 -- sh -c '{script}' | cat\n",
        quorum.urls
    ));
    // Also reported if the run is quiet.
    terminal.shows("SIGTTIN stopped the command, which holds the lock");
    terminal.types("\u{3}");
    quorum.is_free("l");
    terminal.types("exit 7\n");
    assert_eq!(terminal.ends(), Some(7));
}

/// A script has no job control: its jobs are in its own group, which is in the foreground.
#[test]
fn run_in_the_background_of_a_script_leaves_the_terminal_to_the_script() {
    let quorum = Quorum::start();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    let script = format!(
        "{redlock} run l --masters {} -w 60 -- sh -c 'echo rea\"\"dy; exec sleep 1000' & read line; \
         echo \"read <$line>\"; kill $!; wait $!; exit 4",
        quorum.urls
    );
    let mut terminal = AtTerminal::of(|by| {
        let mut shell = Command::new(by[0]);
        shell.args(&by[1..]).args(["sh", "-c", &script]);
        shell
    });
    terminal.shows("ready");
    terminal.types("hello\n");
    terminal.shows("read <hello>");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn command_without_standard_input_uses_the_terminal() {
    let quorum = Quorum::start();
    let script = "echo ready; read line < /dev/tty; echo \"read <$line>\"";
    let mut terminal = AtTerminal::of(|by| {
        let without_input = ["sh", "-c", "exec \"$@\" < /dev/null", "sh"];
        quorum.command_by(&[by, &without_input].concat(), "l", &[], script)
    });
    terminal.shows("ready");
    terminal.types("hello\n");
    terminal.shows("read <hello>");
    assert_eq!(terminal.ends(), Some(0));
}
