//! Removes a directory with the directories that the kubelet creates in it for each `subPath` of a container.
//!
//! Each step opens a name below a directory that is open already. The kernel refuses to follow a symbolic link and to
//! enter another mount, so nothing outside of the directory is removed.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use redlock_client::clock;
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, open, openat2, renameat, unlinkat},
    io::Errno,
};

/// The number of directories in one another that are open at once. A directory below them is moved to the root of the
/// removed tree.
const DEEPEST: usize = 128;
/// The number of files that one call removes, because a removal delays the other volumes of the node. The kubelet calls
/// again, and the next call continues. A descent ends before this number, so each call removes or moves something.
const MOST_FILES: usize = 1_000;
const _: () = assert!(DEEPEST < MOST_FILES);
/// The beginning of the names of directories that were moved in order to be removed.
const ASIDE: &[u8] = b".redlock-removed-";

static MOVED: AtomicU64 = AtomicU64::new(0);

/// Removes a file, a symbolic link or a directory with all that is in it. Nothing of this name is not an error.
///
/// # Errors
/// Returns an error if a part cannot be removed, and if a bounded part of a large tree was removed: the next call
/// continues.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let Some((parent, name)) = opened(path)? else {
        return Ok(());
    };
    match unlinkat(&parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let Some(root) = open_below(parent.as_fd(), &name)? else {
        return Ok(());
    };
    Removal::of(&root).empty(b"")?;
    remove_empty(parent.as_fd(), &name)
}

/// Moves the entry of this name to another name in the same directory, for [`remove_aside`].
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    match opened(path)? {
        Some((parent, name)) => move_aside(parent.as_fd(), &name, parent.as_fd()),
        None => Ok(()),
    }
}

/// Removes the entries that were set aside in a directory, or a bounded part of them.
pub(super) fn remove_aside(directory: &Path) -> io::Result<()> {
    match opened(directory)? {
        Some((parent, name)) => match open_below(parent.as_fd(), &name)? {
            Some(root) => Removal::of(&root).empty(ASIDE),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Opens the directory of a path; `None` if it does not exist.
fn opened(path: &Path) -> io::Result<Option<(OwnedFd, CString)>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("not a path to a directory of a volume"));
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    match open(directory, flags, Mode::empty()) {
        Ok(directory) => Ok(Some((directory, name_of(name)?))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn name_of(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(io::Error::other)
}

/// Opens a directory of another one; `None` if it does not exist.
fn open_below(parent: BorrowedFd<'_>, name: &CString) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(parent, name, flags, Mode::empty(), within) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn remove_empty(parent: BorrowedFd<'_>, name: &CString) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Moves a name to a new name in another directory. The kernel moves no mount point.
fn move_aside(parent: BorrowedFd<'_>, name: &CString, to: BorrowedFd<'_>) -> io::Result<()> {
    let number = MOVED.fetch_add(1, Ordering::Relaxed);
    // The time makes the names differ from those of an agent that ended.
    let mut new = ASIDE.to_vec();
    new.extend(format!("{}-{number}", clock::now().as_nanos()).into_bytes());
    match renameat(parent, name, to, CString::new(new).map_err(io::Error::other)?) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

struct Removal<'a> {
    /// The directory into which directories below too many others are moved.
    root: BorrowedFd<'a>,
    left: usize,
    has_moved: bool,
}

impl<'a> Removal<'a> {
    fn of(root: &'a OwnedFd) -> Self {
        Self {
            root: root.as_fd(),
            left: MOST_FILES,
            has_moved: false,
        }
    }

    /// Removes all names of the root with this beginning.
    fn empty(&mut self, beginning: &[u8]) -> io::Result<()> {
        loop {
            self.has_moved = false;
            for name in self.names(self.root, beginning)? {
                self.remove(self.root, &name, DEEPEST)?;
            }
            if !self.has_moved {
                return Ok(());
            }
        }
    }

    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CString, depth: usize) -> io::Result<()> {
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

    fn remove_directory(&mut self, parent: BorrowedFd<'_>, name: &CString, depth: usize) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            self.has_moved = true;
            return move_aside(parent, name, self.root);
        };
        let Some(directory) = open_below(parent, name)? else {
            return Ok(());
        };
        for name in self.names(directory.as_fd(), b"")? {
            self.remove(directory.as_fd(), &name, depth)?;
        }
        remove_empty(parent, name)
    }

    /// Returns the names in a directory with this beginning, and no more than one that exceeds the number that may be
    /// removed.
    fn names(&self, directory: BorrowedFd<'_>, beginning: &[u8]) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if ![c".", c".."].contains(&name.as_c_str()) && name.as_bytes().starts_with(beginning) {
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
pub(super) mod tests {
    use std::fs;

    use rustix::fs::{CWD, mkdirat, openat};

    use super::*;

    /// The levels of the longest `subPath` that the kernel accepts, nearly.
    const LEVELS: usize = 2_000;

    /// Creates the directories one below the other: each path from the top would visit all levels above.
    pub(in crate::volume) fn deep(directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut below = openat(CWD, directory, flags, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&below, "a", Mode::RWXU).unwrap();
            below = openat(&below, "a", flags, Mode::empty()).unwrap();
        }
    }

    /// Returns the number of calls until one succeeds.
    fn calls(mut call: impl FnMut() -> io::Result<()>) -> usize {
        for number in 1..100 {
            match call() {
                Ok(()) => return number,
                Err(error) => assert!(error.to_string().contains("the next call continues"), "{error}"),
            }
        }
        panic!("the calls do not end");
    }

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
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn directories_in_one_another_are_removed_at_every_depth() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mount");
        for depth in [DEEPEST - 1, DEEPEST, DEEPEST + 1, 3 * DEEPEST] {
            fs::create_dir_all(path.join(vec!["a"; depth].join("/"))).unwrap();
            remove(&path).unwrap();
            assert!(!path.exists(), "{depth}");
        }
    }

    #[test]
    fn repeated_calls_remove_the_deepest_and_widest_trees() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("mount");
        deep(&path);
        let least = LEVELS / MOST_FILES + 1;
        let taken = calls(|| remove(&path));
        assert!(taken <= least + 1, "{taken}");
        assert!(!path.exists());

        let branches = 2;
        for branch in 0..branches {
            deep(&path.join(branch.to_string()));
        }
        let taken = calls(|| remove(&path));
        assert!(taken <= branches * least + 1, "{taken}");
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_below_many_levels_is_moved_without_following_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, outside) = (folder.path().join("mount"), folder.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        let below = path.join(vec!["a"; DEEPEST].join("/"));
        fs::create_dir_all(below.join("a/b")).unwrap();
        for directory in [below.join("a/b"), below.join("a"), below.clone()] {
            std::os::unix::fs::symlink(&outside, directory.join("link")).unwrap();
        }
        remove(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
