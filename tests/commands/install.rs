//! Tests `redlock install`.

use std::process::Command;

use crate::program::redlock;

#[test]
fn the_copy_is_this_program_and_replaces_an_existing_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy");
    std::fs::write(&file, "something else").unwrap();
    redlock(&["install", file.to_str().unwrap()]).expect(0, &[]);
    let output = Command::new(&file).arg("--version").output().unwrap();
    assert!(output.stdout.starts_with(b"redlock "), "{output:?}");
    // The program installs itself, also while it runs.
    let again = Command::new(&file).arg("install").arg(&file).status().unwrap();
    assert!(again.success(), "{again}");
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn where_it_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, missing) = (folder.path().to_str().unwrap(), folder.path().join("no/copy"));
    redlock(&["install", missing.to_str().unwrap()]).expect(78, &["no/copy", "No such file"]);
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    redlock(&["install", taken.to_str().unwrap()]).expect(78, &["taken", "directory"]);
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        1,
        "{path} holds a part"
    );
    redlock(&["install"]).expect(64, &["FILE"]);
}
