//! Finds the directory of this process's own cgroup, by the mount point of the file system and the path of
//! the cgroup in it.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::CgroupError;

const MOUNTS: &str = "/proc/self/mountinfo";
const OWN: &str = "/proc/self/cgroup";

pub(super) fn directory() -> Result<PathBuf, CgroupError> {
    let read = |file: &str| {
        fs::read_to_string(file).map_err(|cause| CgroupError::file("reading", Path::new(file), cause))
    };
    let directory = find(&read(MOUNTS)?, &read(OWN)?)?;
    // Another file system may be mounted over it.
    match statfs(&directory) {
        Ok(found) if found.filesystem_type() == CGROUP2_SUPER_MAGIC => Ok(directory),
        Ok(_) => Err(CgroupError::Covered { path: directory }),
        Err(errno) => Err(CgroupError::file("reading", &directory, errno.into())),
    }
}

/// Finds the directory by the texts of both files. A mount may show a part of the tree; the cgroup must then
/// be in that part.
fn find(mounts: &str, own: &str) -> Result<PathBuf, CgroupError> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or(CgroupError::NoMount)?;
    let mounts: Vec<(PathBuf, PathBuf)> = mounts.lines().filter_map(mount).collect();
    if mounts.is_empty() {
        return Err(CgroupError::NoMount);
    }
    let shown = mounts.iter().find_map(|(root, at)| {
        let below = Path::new(own).strip_prefix(root).ok()?;
        let plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        plain.then(|| at.join(below))
    });
    shown.ok_or_else(|| CgroupError::NotShown { own: own.to_owned() })
}

/// Returns the part of the tree that a line of `mountinfo` shows, and its mount point; `None` for another
/// file system.
fn mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, at) = (fields.next()?, fields.next()?);
    (kind.split(' ').next()? == "cgroup2").then(|| (unescaped(root), unescaped(at)))
}

/// Replaces the escapes of `mountinfo`: white space and the backslash are written as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let escaped = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let text = escaped
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "24 30 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                          32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn own_cgroup_is_found_below_its_mount() {
        let part = "24 30 0:22 /kubepods/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let two = format!("{part}25 30 0:22 / /mnt/a\\040tree rw - cgroup2 cgroup rw\n");
        for (mounts, own, directory) in [
            (UNIFIED, "0::/\n", "/sys/fs/cgroup/"),
            (
                UNIFIED,
                "0::/user.slice/a b.scope\n",
                "/sys/fs/cgroup/user.slice/a b.scope",
            ),
            (HYBRID, "5:cpu:/x\n0::/y\n", "/sys/fs/cgroup/unified/y"),
            (part, "0::/kubepods/a/b\n", "/sys/fs/cgroup/b"),
            (&two, "0::/other\n", "/mnt/a tree/other"),
        ] {
            assert_eq!(find(mounts, own).unwrap(), Path::new(directory));
        }
    }

    #[test]
    fn cgroup_that_no_mount_shows_is_refused() {
        let part = "24 30 0:22 /kubepods/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for (mounts, own, text) in [
            ("", "0::/\n", "no cgroup2 file system"),
            (UNIFIED, "5:cpu:/x\n", "no cgroup2 file system"),
            (part, "0::/kubepods/ab\n", "/kubepods/ab"),
            (UNIFIED, "0::/../other\n", "/../other"),
        ] {
            let error = find(mounts, own).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
