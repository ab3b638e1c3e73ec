//! A PATH with only the programs that a test adds.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use redlock_testkit::write_executable;
use tempfile::TempDir;

use super::source::ROOT;

pub struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Creates a PATH with these programs of this machine.
    pub fn real(names: &[&str]) -> Self {
        let programs = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for name in names {
            let path = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
            let path = path
                .iter()
                .find(|path| path.exists())
                .unwrap_or_else(|| panic!("{name} is missing"));
            symlink(path, programs.path().join(name)).unwrap();
        }
        programs
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Adds or replaces a program.
    pub fn add(&self, name: &str, script: &str) {
        let path = self.path().join(name);
        write_executable(&path, &format!("#!/bin/sh\n{script}\n"));
    }

    /// Returns a command that runs a script of the repository with these programs and an otherwise empty environment.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new(Path::new(ROOT).join("scripts").join(script));
        command.env_clear().env("PATH", self.path());
        command
    }
}
