//! What a shell and a reader of manuals get.

use std::process::Command;

use crate::program::redlock;

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
        // As bash calls it: the words in an array, the last one being typed, and the one before it.
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
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        redlock(&["completion", shell]).expect(0, &["hand-over", "masters"]);
    }
    redlock(&["completion", "csh"]).expect(64, &["csh", "bash", "fish", "zsh"]);
    redlock(&["completion"]).expect(64, &["SHELL"]);
}

/// To the byte; a roff text has ends of lines that are to be kept.
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
    assert_eq!(printed(&["man"]), program);
}

#[test]
fn a_manual_page_that_cannot_be_says_why() {
    redlock(&["man", "nonsense"]).expect(64, &["no command \"nonsense\"", "status", "hand-over"]);
    redlock(&["man", "--directory", "/nonexistent"]).expect(78, &["--directory /nonexistent", "redlock-"]);
    redlock(&["man", "status", "--directory", "."]).expect(64, &["--directory"]);
}
