//! Processes by their ids, as `/proc` shows them.

use std::fs;

/// Returns the letter of its state, and its parent; `None` without such a process.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is before it in parentheses, and may itself contain anything.
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Returns its command line, each word ended by a zero.
pub fn command_line(pid: i32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reports whether it runs; a process that is not reaped does not.
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

/// The guardians of a `redlock run`, alive.
pub fn guardians(wrapper: i32) -> impl Iterator<Item = i32> {
    children(wrapper).filter(|&pid| is_guardian(pid))
}

/// The children of a `redlock run` that run `program`, alive.
pub fn commands(wrapper: i32, program: &str) -> impl Iterator<Item = i32> {
    let begins = format!("{program}\0");
    children(wrapper).filter(move |&pid| command_line(pid).is_some_and(|line| line.starts_with(&begins)))
}
