//! Reads the records of the work: a file for each of its processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use redlock::clock;
use redlock::lease::BootInstant;

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: BootInstant,
    pub token: u64,
}

/// All writes of one holder.
#[derive(Debug)]
pub struct Record {
    pub writes: Vec<Write>,
    /// The time of the last write, by its own record or by the kernel's time of the file: a process can be stopped
    /// between its read of the clock and the write.
    pub last: BootInstant,
}

/// The wall-clock time at which the machine booted; the files have wall-clock times.
#[derive(Clone, Copy, Debug)]
pub struct Booted(Duration);

impl Booted {
    pub fn now() -> Self {
        // The two clocks cannot be read at once, so the try with the least time between the reads counts.
        let tries = (0..20).map(|_| {
            let (before, wall, after) = (clock::now(), clock::unix_time(), clock::now());
            (after.since(before), wall - before.since(BootInstant::default()))
        });
        Self(tries.min().unwrap().1)
    }

    /// Returns how far the wall clock was set since this value was read; a step makes times of files useless.
    pub fn moved(self) -> Duration {
        self.0.abs_diff(Self::now().0)
    }
}

fn files(folder: &Path, name: &str) -> Vec<(PathBuf, i32)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_name = paths.filter_map(|path| {
        let (found, pid) = path.file_name()?.to_str()?.split_once('.')?;
        let pid = (found == name).then(|| pid.parse().unwrap())?;
        Some((path, pid))
    });
    of_name.collect()
}

/// Returns the processes of a holder that have written so far.
pub fn pids(folder: &Path, name: &str) -> Vec<i32> {
    let begun = files(folder, name).into_iter();
    let begun = begun.filter(|(path, _)| fs::metadata(path).unwrap().len() > 0);
    begun.map(|(_, pid)| pid).collect()
}

/// Returns the time of the first write of a holder, if any.
pub fn first(folder: &Path, name: &str) -> Option<BootInstant> {
    let firsts = files(folder, name).into_iter().filter_map(|(path, _)| {
        let mut line = String::new();
        BufReader::new(fs::File::open(path).unwrap())
            .read_line(&mut line)
            .unwrap();
        line.ends_with('\n').then(|| parse(&line).at)
    });
    firsts.min()
}

/// Returns the number of bytes that a holder has written so far.
pub fn size(folder: &Path, name: &str) -> u64 {
    let files = files(folder, name).into_iter();
    files.map(|(path, _)| fs::metadata(path).unwrap().len()).sum()
}

pub fn read(folder: &Path, name: &str, booted: Booted) -> Record {
    let mut record = Record {
        writes: Vec::new(),
        last: BootInstant::default(),
    };
    for (path, _) in files(folder, name) {
        let text = fs::read_to_string(&path).unwrap();
        // The last line of a killed process may be incomplete. Then the time of the file counts.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        record.writes.extend(whole.lines().map(parse));
        if !text.is_empty() {
            let stamped = fs::metadata(&path).unwrap().modified().unwrap();
            let stamped = stamped.duration_since(UNIX_EPOCH).unwrap() - booted.0;
            record.last = record.last.max(BootInstant::default() + stamped);
        }
    }
    record.writes.sort_by_key(|write| write.at);
    record.last = record
        .writes
        .last()
        .map_or(record.last, |write| record.last.max(write.at));
    record
}

fn parse(line: &str) -> Write {
    let words = line
        .trim()
        .split_once(' ')
        .unwrap_or_else(|| panic!("a line of a record: {line:?}"));
    Write {
        at: BootInstant::from_nanos(words.0.parse().unwrap()),
        token: words.1.parse().unwrap(),
    }
}
