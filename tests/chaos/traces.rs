//! Replays the inputs of every process and compares its decisions.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Ran, redlock};

/// The replay of all traces, which are deleted unless a divergence was found.
#[derive(Debug)]
pub struct Traces {
    ran: Ran,
    bytes: u64,
    /// The traces that diverged, with their content.
    diverged: Vec<(PathBuf, Vec<u8>)>,
}

impl Traces {
    /// Replays all files in this folder.
    pub fn replay(folder: &Path) -> Self {
        let entries = fs::read_dir(folder).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let bytes = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        let names: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
        let ran = redlock(&[&["replay"], &*names].concat());
        let diverged = files.iter().filter(|path| {
            let name = format!("{}: ", path.display());
            !ran.stdout
                .lines()
                .any(|line| line.starts_with(&name) && line.ends_with(" outputs equal"))
        });
        let diverged = diverged
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        Self { ran, bytes, diverged }
    }

    /// Reports a divergence. A run in which nothing was compared proves nothing.
    pub fn wrong(&self) -> Option<String> {
        let compared = self.ran.code == Some(0) && !self.summary().contains(" 0 outputs equal");
        (!compared).then(|| format!("a replay diverged: {}\n{}", self.ran.stdout, self.ran.stderr))
    }

    pub fn keep(&self, folder: &Path) {
        for (path, text) in &self.diverged {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::write(folder.join(format!("{name}.trace")), text).unwrap();
        }
    }

    fn summary(&self) -> &str {
        self.ran.stdout.lines().last().unwrap_or("it wrote nothing")
    }
}

impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes / 1_000_000;
        write!(f, "{}, {megabytes} MB", self.summary())
    }
}
