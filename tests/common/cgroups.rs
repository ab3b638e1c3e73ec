//! Reads and creates cgroups of version 2 on this machine, without the program's own code for them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use redlock_testkit::eventually_blocking;

const BOUND: std::time::Duration = std::time::Duration::from_secs(10);

/// Returns the mount point of cgroup2.
pub fn mount() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = lines.find(|fields| fields[2] == "cgroup2");
    found
        .map(|fields| fields[1].into())
        .ok_or("no cgroup2 is mounted".into())
}

/// Returns the cgroup of this process, if this user may create cgroups in it and move processes there.
pub fn own() -> Result<PathBuf, String> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = mount()?.join(own.ok_or("this process is in no cgroup of version 2")?);
    probe(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    Ok(own)
}

/// Returns the same, or `None` after a line on standard error, which is shown even for a test that succeeds.
/// With `CGROUPS=required`, a missing cgroup is a failure.
pub fn own_or_report(untested: &str) -> Option<PathBuf> {
    let own = own();
    if let Err(why) = &own {
        let report = format!("NOT TESTED: {untested}: no cgroup can be created here: {why}");
        assert!(std::env::var("CGROUPS").as_deref() != Ok("required"), "{report}");
        let _ = writeln!(std::io::stderr(), "{report}");
    }
    own.ok()
}

fn probe(own: &Path) -> std::io::Result<()> {
    let made = Made::below(own, "probe")?;
    fs::metadata(made.0.join("cgroup.kill"))?;
    let mut sleeps = Command::new("sleep").arg("60").spawn()?;
    let moved = fs::write(made.0.join("cgroup.procs"), sleeps.id().to_string());
    sleeps.kill()?;
    sleeps.wait()?;
    moved
}

/// A cgroup of a test. A drop removes it and the cgroups below it, which must become empty.
#[derive(Debug)]
pub struct Made(pub PathBuf);

impl Made {
    pub fn below(parent: &Path, name: &str) -> std::io::Result<Self> {
        let number = fastrand::u64(..);
        let path = parent.join(format!("test-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for name in below(&self.0) {
            let _ = fs::remove_dir(self.0.join(name));
        }
        eventually_blocking(BOUND, "the cgroup of the test is removed", || {
            fs::remove_dir(&self.0)
        });
    }
}

/// Returns the names of the cgroups below a cgroup.
pub fn below(parent: &Path) -> Vec<String> {
    let entries = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    folders
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// Returns the cgroup of a `redlock run --contain` by its process id, if it exists.
pub fn of(wrapper: u32, parent: &Path) -> Option<PathBuf> {
    let begins = format!("redlock-{wrapper}-");
    let mut names = below(parent).into_iter();
    names
        .find(|name| name.starts_with(&begins))
        .map(|name| parent.join(name))
}
