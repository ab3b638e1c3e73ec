//! Finds programs that only some tests run, and that a machine may lack: load balancers and other languages.

use std::io::Write;
use std::process::Command;

/// Reports whether this program can be used, and otherwise writes a line on standard error, which is shown even for a test that
/// succeeds. With `PROGRAMS=required`, a program that is missing is a failure.
pub fn is_there_or_report(program: &str, untested: &str) -> bool {
    let Err(why) = probe(program) else {
        return true;
    };
    let report = format!("NOT TESTED: {untested}: {program}: {why}");
    assert!(std::env::var("PROGRAMS").as_deref() != Ok("required"), "{report}");
    let _ = writeln!(std::io::stderr(), "{report}");
    false
}

/// How to ask a program for its version, the text before the number, and the least number.
fn question(program: &str) -> (&'static str, &'static str, u32) {
    match program {
        "go" => ("version", "go version go", 1),
        "haproxy" => ("-v", "version ", 2),
        // Lists the compiler, which a runtime environment lacks and a single source file needs.
        "java" => ("--list-modules", "jdk.compiler@", 11),
        "jq" => ("--version", "jq-", 1),
        "nginx" => ("-v", "nginx/", 1),
        "node" => ("--version", "v", 18),
        "python3" => ("--version", "Python ", 3),
        "readelf" => ("--version", "GNU readelf", 0),
        _ => panic!("{program} has no question"),
    }
}

fn probe(program: &str) -> Result<(), String> {
    let (flag, before, least) = question(program);
    let output = Command::new(program).arg(flag).output();
    let output = output.map_err(|error| format!("it is missing: {error}"))?;
    let answer = [output.stdout, output.stderr].concat();
    let answer = String::from_utf8_lossy(&answer);
    let Some((_, number)) = answer.split_once(before).filter(|_| output.status.success()) else {
        return Err(format!(
            "`{program} {flag}` shows no {before:?}: {}",
            answer.trim()
        ));
    };
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let found = digits.parse().unwrap_or(0);
    if found < least {
        return Err(format!("it has version {found}, and {least} is needed"));
    }
    Ok(())
}
