//! Tests shell completion and the manual pages.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::program::redlock;
use redlock_testkit::write_executable;

#[test]
fn bash_completes_commands_flags_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("redlock.bash");
    let printed = redlock(&["completion", "bash"]);
    std::fs::write(&script, &printed.expect(0, &[]).stdout).unwrap();
    for (typed, wanted) in [
        (&["redlock", "stat"][..], "status"),
        (&["redlock", "status", "--mast"], "--masters"),
        (&["redlock", "status", "--output", "j"], "json"),
        (&["redlock", "completion", "z"], "zsh"),
    ] {
        // Like bash: the words in an array, the word that is being typed, and the one before it.
        let (word, before) = (typed[typed.len() - 1], typed[typed.len() - 2]);
        let ask = format!(
            "source \"$1\"; COMP_WORDS=({}); COMP_CWORD={}; _redlock redlock '{word}' '{before}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            typed.join(" "),
            typed.len() - 1
        );
        let bash = Command::new("bash")
            .args(["-c", &ask, "bash"])
            .arg(&script)
            .output();
        let bash = bash.expect("bash");
        let answer = String::from_utf8(bash.stdout).unwrap();
        assert!(
            answer.lines().any(|line| line.trim() == wanted),
            "{typed:?}: {answer:?} {}",
            String::from_utf8_lossy(&bash.stderr)
        );
    }
}

#[test]
fn every_shell_has_a_completion() {
    redlock(&["completion", "kubectl"]).expect(0, &["#!/bin/sh", "__complete"]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        redlock(&["completion", shell]).expect(0, &["hand-over", "masters"]);
    }
    redlock(&["completion", "csh"]).expect(64, &["csh", "bash", "fish", "zsh"]);
    redlock(&["completion"]).expect(64, &["SHELL"]);
}

/// Returns the output byte by byte; a roff text keeps its line ends.
fn printed(arguments: &[&str]) -> String {
    let program = Command::new(env!("CARGO_BIN_EXE_redlock"))
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8(program.stdout).unwrap()
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    redlock(&["man", "--directory", path]).expect(0, &[]);
    let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
    let program = page("redlock");
    assert!(program.contains(".TH redlock 1"), "{program}");
    for command in ["status", "doctor", "init", "hand-over", "operator", "man"] {
        let name = format!("redlock-{command}");
        // In roff a hyphen that is to be copied is escaped.
        let escaped = name.replace('-', "\\-");
        assert!(program.contains(&format!("{escaped}(1)")), "{command}: {program}");
        let text = page(&name);
        assert!(text.contains(&format!(".TH {name} 1")), "{text}");
        assert!(text.contains(".SH EXAMPLES\n.nf\n  redlock "), "{text}");
        assert_eq!(printed(&["man", command]), text);
    }
    assert!(page("redlock-fence-release").contains(".SH EXAMPLES"));
    assert_eq!(printed(&["man"]), program);
}

#[test]
fn invalid_arguments_of_man_are_refused_with_the_reason() {
    redlock(&["man", "nonsense"]).expect(64, &["no command \"nonsense\"", "status", "hand-over"]);
    redlock(&["man", "--directory", "/nonexistent"]).expect(78, &["--directory /nonexistent", "redlock-"]);
    redlock(&["man", "status", "--directory", "."]).expect(64, &["--directory"]);
}

/// A folder for the PATH with the program under the name of the plugin.
struct Plugin(tempfile::TempDir);

impl Plugin {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(
            env!("CARGO_BIN_EXE_redlock"),
            folder.path().join("kubectl-redlock"),
        )
        .unwrap();
        Self(folder)
    }

    /// Returns exit code and output of a program that this PATH finds.
    fn run(&self, program: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.0.path().join(program));
        crate::common::forget_variables(&mut command);
        let output = command.args(arguments).env("PATH", path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn script(&self, name: &str, text: &str) {
        write_executable(&self.0.path().join(name), text);
    }
}

#[test]
fn help_of_the_plugin_names_kubectl() {
    let plugin = Plugin::new();
    for (arguments, code, texts) in [
        (
            &["--help"][..],
            0,
            &["Usage: kubectl redlock <COMMAND>", "doctor"][..],
        ),
        (
            &["status", "--help"],
            0,
            &[
                "Usage: kubectl redlock status",
                "  kubectl redlock status -n billing",
                "--context",
            ],
        ),
        (&["stauts"], 64, &["status", "Usage: kubectl redlock"]),
        (&["status", "--contxt", "x"], 64, &["--context"]),
        (&["man", "status"], 0, &[".TH kubectl-redlock-status 1"]),
        (&["completion", "bash"], 0, &["-o default kubectl-redlock"]),
        (
            &[
                "status",
                "--kubeconfig",
                "/nonexistent/config",
                "--context",
                "eu-1",
                "-n",
                "billing",
            ],
            78,
            &["/nonexistent/config"],
        ),
        (
            &[
                "break",
                "-n",
                "billing",
                "report",
                "--kubeconfig",
                "/nonexistent/config",
            ],
            78,
            &["/nonexistent"],
        ),
    ] {
        let (ended, output) = plugin.run("kubectl-redlock", arguments);
        assert_eq!(ended, Some(code), "{arguments:?}: {output}");
        for text in texts {
            assert!(
                output.contains(text),
                "{arguments:?} does not print {text:?}: {output}"
            );
        }
    }
    let (_, output) = plugin.run("kubectl-redlock", &["doctor", "--help"]);
    assert!(!output.contains("  redlock "), "{output}");
    redlock(&["doctor", "--help"]).expect(0, &["Usage: redlock doctor", "  redlock doctor "]);
}

/// Acts like kubectl: runs `kubectl_complete-redlock` with the words, the last of which is being typed, and
/// reads lines and a directive. In the test, a script runs the plugin by its name.
#[test]
fn kubectl_completes_the_plugin() {
    let plugin = Plugin::new();
    plugin.script(
        "kubectl",
        "#!/bin/sh\nplugin=kubectl-$1; shift; exec \"$plugin\" \"$@\"\n",
    );
    let (code, script) = plugin.run("kubectl-redlock", &["completion", "kubectl"]);
    assert_eq!(code, Some(0), "{script}");
    plugin.script("kubectl_complete-redlock", &script);
    for (words, choice, directive) in [
        (&["sta"][..], "status\t", ":4"),
        (&["status", "--con"], "--context\t", ":4"),
        (&["status", "--output", ""], "json\t", ":4"),
        (&["doctor", "--kubeconfig", ""], ":0", ":0"),
    ] {
        let (code, output) = plugin.run("kubectl_complete-redlock", words);
        assert_eq!(code, Some(0), "{output}");
        assert!(
            output.lines().any(|line| line.starts_with(choice)),
            "{words:?}: {output}"
        );
        assert_eq!(output.lines().last(), Some(directive), "{words:?}: {output}");
    }
}
