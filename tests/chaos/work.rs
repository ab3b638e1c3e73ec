//! The work under `redlock run`: writes to the resource, and records time, token and answer of each write.
//!
//! The work is a separate process: this test binary, which `redlock run` starts again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;

use crate::claims::Claim;
use crate::common::{Answer, Resource};

/// The folder of the records.
const FOLDER: &str = "CHAOS_FOLDER";
/// The name of the process that does the work.
const NAME: &str = "CHAOS_NAME";
/// The address of the resource that refuses smaller tokens.
const RESOURCE: &str = "CHAOS_RESOURCE";
const PACE: Duration = Duration::from_millis(10);

/// Returns the program as `/proc` shows it.
pub fn program() -> String {
    std::env::current_exe().unwrap().to_string_lossy().into_owned()
}

/// Adds the work to a `redlock run … --`.
pub fn add_to(command: &mut Command, name: &str, folder: &Path, resource: &str) {
    command
        .args([&program(), "--ignored", "--exact", "work"])
        .env(FOLDER, folder)
        .env(NAME, name)
        .env(RESOURCE, resource);
}

/// Writes `BEFORE AFTER TOKEN ANSWER` lines, one write(2) each. The write to the resource happens between the two
/// times.
pub fn run() {
    // Without the variable this test does nothing.
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let token: u64 = variable("REDLOCK_TOKEN").parse().unwrap();
    let (name, lock) = (variable(NAME), variable("REDLOCK_LOCK"));
    let file = folder.join(format!("{name}.{}", std::process::id()));
    // A process id may be reused in a long run.
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    let mut resource = Resource::open(&variable(RESOURCE), &lock);
    // After the harness was killed, the work ends when its folder is gone.
    while folder.exists() {
        let before = clock::now().as_nanos();
        let answer = match resource.append(token) {
            Answer::Accepted => "accepted",
            Answer::Refused => "refused",
        };
        let after = clock::now().as_nanos();
        file.write_all(format!("{lock} {before} {after} {token} {answer}\n").as_bytes())
            .unwrap();
        thread::sleep(PACE);
    }
}

/// Reads the records of all work: a claim for each process, and the number of refused writes.
pub fn records(folder: &Path) -> (Vec<Claim>, u64) {
    let (mut claims, mut refused) = (Vec::<Claim>::new(), 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let who = path.file_name().unwrap().to_string_lossy().into_owned();
        let first = claims.len();
        let text = fs::read_to_string(&path).unwrap();
        // The last line may be incomplete if the process was killed.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [lock, before, after, token, answer] = words[..] else {
                panic!("a line of a record: {line:?}");
            };
            let moment = |text: &str| BootInstant::from_nanos(text.parse().unwrap());
            let (token, to) = (token.parse().unwrap(), moment(after));
            refused += u64::from(answer == "refused");
            match claims[first..].last_mut() {
                Some(claim) if claim.token == token => claim.to = to,
                _ => claims.push(Claim {
                    lock: lock.to_owned(),
                    who: who.clone(),
                    token,
                    from: moment(before),
                    to,
                }),
            }
        }
    }
    (claims, refused)
}
