//! Reads a folder of manifests: its valid objects, and the problems of all others.
//!
//! Owns the access to the files. [`parse`] turns their text into objects, and [`assemble`] turns the objects into
//! plans; both are pure. An invalid document does not affect the others, except that the locks of an invalid quorum are
//! refused with it. A document with an unknown field is refused, because a misspelt `leaseDurationSeconds` would
//! otherwise silently become a default.

mod assemble;
mod parse;
mod problem;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::api::plan::{LockPlan, QuorumPlan};

pub(crate) use problem::Problem;

/// The largest size of a file, in bytes. A Kubernetes object may have 1.5 MiB, and thousands of locks fit
/// into this size. The limit keeps a file that is not a manifest from exhausting the memory.
const FILE_LIMIT: u64 = 8 * 1024 * 1024;

/// The content of a folder. Quorums and locks are in the order of files and documents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Loaded {
    pub(crate) quorums: Vec<QuorumPlan>,
    pub(crate) locks: Vec<LockPlan>,
    /// The file of each object that could be read, valid or not, by a name such as `LeaderLock billing/report`.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) problems: Vec<Problem>,
}

/// The folder itself could not be read.
#[derive(Debug, thiserror::Error)]
#[error("reading the manifests in {}: give a readable folder of .yaml or .json files", folder.display())]
pub(crate) struct LoadError {
    folder: PathBuf,
    source: io::Error,
}

/// Reads every `*.yaml`, `*.yml` and `*.json` of a folder, in the order of names, but not its sub-folders. Names that begin with
/// a dot are skipped; links are followed, since a mounted ConfigMap consists of links to files in a hidden folder.
pub(crate) fn load(folder: &Path) -> Result<Loaded, LoadError> {
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for path in manifest_files(folder).map_err(|source| LoadError {
        folder: folder.to_owned(),
        source,
    })? {
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match read(&path) {
            Ok(Some(text)) => {
                let parsed = parse::parse(&file, &text);
                documents.extend(parsed.documents);
                problems.extend(parsed.problems);
            }
            Ok(None) => {}
            Err(cause) => problems.push(Problem::of_file(&file, format!("cannot be read: {cause}"))),
        }
    }
    Ok(assemble::assemble(documents, problems))
}

/// The reason why no quorum could be read from a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuorumFileError {
    #[error("{} cannot be read", file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{} contains no usable RedisQuorum: {}", file.display(), reasons(problems))]
    None { file: PathBuf, problems: Vec<Problem> },
    #[error("{} contains {count} RedisQuorums: give a file with one", file.display())]
    Several { file: PathBuf, count: usize },
}

fn reasons(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "no RedisQuorum is declared".to_owned();
    }
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// Returns the one quorum that a file declares, and ignores its other objects.
pub(crate) fn load_quorum(file: &Path) -> Result<QuorumPlan, QuorumFileError> {
    let (owned, name) = (file.to_owned(), file.file_name().unwrap_or_default());
    let text = match read(file) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(QuorumFileError::Unreadable { file: owned, source });
        }
        Err(source) => return Err(QuorumFileError::Unreadable { file: owned, source }),
    };
    let mut parsed = parse::parse(&name.to_string_lossy(), &text);
    parsed
        .documents
        .retain(|document| matches!(document.object, parse::Object::Quorum(_)));
    let mut loaded = assemble::assemble(parsed.documents, parsed.problems);
    match (loaded.quorums.pop(), loaded.quorums.len()) {
        (Some(quorum), 0) => Ok(quorum),
        (Some(_), others) => Err(QuorumFileError::Several {
            file: owned,
            count: others + 1,
        }),
        (None, _) => Err(QuorumFileError::None {
            file: owned,
            problems: loaded.problems,
        }),
    }
}

fn manifest_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let manifest = path
            .extension()
            .is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known));
        if manifest && !hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the content of a file, or `None` for a folder. Refuses everything that is not a plain file (a pipe, a
/// device), because it could block the reader forever.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        return Ok(None);
    }
    if !kind.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > FILE_LIMIT {
        return Err(io::Error::other(format!(
            "larger than {} MiB",
            FILE_LIMIT / 1024 / 1024
        )));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests;
