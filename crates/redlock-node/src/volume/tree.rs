//! Removes a directory with the directories that the kubelet creates in it for each `subPath` of a container.
//!
//! Each step opens a name below a directory that is open already. The kernel refuses to follow a symbolic link and to
//! enter another mount, so nothing outside of the directory is removed.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, open, openat2, unlinkat},
    io::Errno,
};

/// The number of directories in one another that are removed. Each of them is open meanwhile.
const DEEPEST: usize = 128;
/// The number of files that one call removes. The kubelet calls again, and the next call continues.
const MOST_FILES: usize = 10_000;

/// Removes a file, a symbolic link or a directory with all that is in it. Nothing of this name is not an error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("not a path to a directory of a volume"));
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    match open(directory, flags, Mode::empty()) {
        Ok(directory) => {
            let mut removal = Removal { left: MOST_FILES };
            removal.remove(&directory, &name_of(name)?, DEEPEST)
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn name_of(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(io::Error::other)
}

struct Removal {
    left: usize,
}

impl Removal {
    fn remove(&mut self, parent: &OwnedFd, name: &CString, depth: usize) -> io::Result<()> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(io::Error::other(format!(
                "more than {MOST_FILES} files: the next call continues"
            )));
        };
        self.left = left;
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => self.remove_directory(parent, name, depth),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove_directory(&mut self, parent: &OwnedFd, name: &CString, depth: usize) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(io::Error::other(format!(
                "more than {DEEPEST} directories in one another"
            )));
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let directory = match openat2(parent, name, flags, Mode::empty(), within) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for name in self.names(&directory)? {
            self.remove(&directory, &name, depth)?;
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the names in a directory, and no more than one that exceeds the number that may be removed.
    fn names(&self, directory: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if ![c".", c".."].contains(&name.as_c_str()) {
                names.push(name);
            }
            if names.len() > self.left {
                break;
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_call_removes_a_bounded_number_of_files_and_the_next_call_continues() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mount");
        fs::create_dir(&path).unwrap();
        for number in 0..=MOST_FILES {
            fs::write(path.join(number.to_string()), "").unwrap();
        }
        let error = remove(&path).unwrap_err().to_string();
        assert!(error.contains("the next call continues"), "{error}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn directories_in_one_another_are_removed_up_to_a_depth() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mount");
        let below = |depth: usize| vec!["a"; depth].join("/");
        fs::create_dir_all(path.join(below(DEEPEST - 1))).unwrap();
        remove(&path).unwrap();
        fs::create_dir_all(path.join(below(DEEPEST))).unwrap();
        let error = remove(&path).unwrap_err().to_string();
        assert!(error.contains("in one another"), "{error}");
        assert!(path.exists());
    }
}
