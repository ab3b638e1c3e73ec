//! Reads the state of processes from `/proc`, by their ids.

use std::fs;

/// Returns the state letter and the parent of a process; `None` if the process does not exist.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program precedes the state in parentheses, and may contain any character.
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Returns the command line of a process, with a zero byte after each word.
pub fn command_line(pid: i32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reports whether a process runs; a process that is not reaped does not.
pub fn runs(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// Returns the children of a process that are alive.
fn children(parent: i32) -> impl Iterator<Item = i32> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    ids.filter(move |&pid| stat(pid).is_some_and(|(state, of)| of == parent && state != 'Z'))
}

fn is_guardian(pid: i32) -> bool {
    let name = || command_line(pid)?.split('\0').next().map(str::to_owned);
    // The guardian changes its name once signals have no effect on it.
    let ready =
        || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "redlock-guard");
    name().as_deref() == Some("redlock-guardian") && ready()
}

/// Returns the guardians of a `redlock run` that are alive.
pub fn guardians(wrapper: i32) -> impl Iterator<Item = i32> {
    children(wrapper).filter(|&pid| is_guardian(pid))
}

/// Returns the children of a `redlock run` that run `program` and are alive.
pub fn commands(wrapper: i32, program: &str) -> impl Iterator<Item = i32> {
    let begins = format!("{program}\0");
    children(wrapper).filter(move |&pid| command_line(pid).is_some_and(|line| line.starts_with(&begins)))
}
